"""The CPU as the device of a program that asks for CUDA, by the stand-ins in Megatron-LM's data file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import dsforge.rank
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.rank.program import STAND_INS, variables
from tests.unit.rank.test_program import environ, made

LISTED = flavour_of("megatron-lm").stand_ins


def run(tmp_path: Path, code: str, stand_ins: dict[str, str] = LISTED) -> subprocess.CompletedProcess[str]:
    added = variables(made(stand_ins=stand_ins), {**environ(tmp_path), "LOCAL_SIZE": "2"})
    full = {**os.environ, **added, "LOCAL_RANK": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", code], env=full, capture_output=True, text=True, check=False)


TENSORS = """
import torch, typing
from torch import nn
x = torch.tensor([1.0, 2.0], device="cuda")
here = torch.cuda.current_device()
moved = [x, x.cuda(), x.cuda(here, non_blocking=True), x.to("cuda:1"), x.to(here), x.to(torch.device("cuda")),
         torch.zeros(2, device=here), torch.empty_like(x, device="cuda"),
         torch.rand(3, device=torch.device("cuda", 1)), x.new_zeros(2, device="cuda"), x.pin_memory(),
         nn.Linear(2, 2, device="cuda").cuda(here).to("cuda").weight]
assert all(one.device == torch.device("cpu") for one in moved)
assert x.cuda() is x and x.to(torch.float64).dtype == torch.float64
assert torch.tensor(0).item() == 0 and torch.zeros(2, 3).shape == (2, 3)
assert torch.full((1,), 7, device="cuda") == 7
assert torch.ones(1, device="meta").device.type == "meta"
assert x.type() == "torch.cuda.FloatTensor" and x.bfloat16().type() == "torch.cuda.BFloat16Tensor"
assert x.type(torch.int64).dtype == torch.int64
assert torch.cuda.is_available() and (torch.cuda.device_count(), here) == (2, 1)
assert torch.cuda.memory_allocated() == 0 and torch.cuda.get_device_properties(0).major == 0
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    stream.wait_stream(torch.cuda.current_stream())
torch.cuda.Event(enable_timing=True).record()
x.record_stream(stream)
weights = nn.Parameter(torch.zeros(3))
weights[1:].copy_(x)
assert weights.tolist() == [0, 1, 2] and weights.grad_fn is None
nn.Parameter(x.clone()).clone().copy_(nn.Parameter(x) * 2).sum().backward()
def f(): pass
assert torch.compile(f) is f and torch.compile(dynamic=True)(f) is f and typing.override(f) is f
"""


def test_what_is_asked_for_on_cuda_lies_on_the_cpu(tmp_path):
    done = run(tmp_path, TENSORS)
    assert done.returncode == 0, done.stderr
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("dsforge: ")]
    assert told == f"dsforge: the CPU is the device; stand-ins serve {', '.join(LISTED)}"


def test_the_devices_generator_is_the_cpus(tmp_path):
    """As Megatron's tracker of random states uses it: a state of its own, forked and put back."""
    code = """
import torch
torch.manual_seed(1)
before = torch.cuda.get_rng_state()
torch.cuda.manual_seed(7)
own = torch.cuda.random.get_rng_state(device="cuda")
def put(state): torch.cuda._lazy_call(lambda: torch.cuda.default_generators[1].set_state(state))
put(before)
first = torch.rand(2)
put(own)
drawn = torch.rand(2, device="cuda")
torch.cuda.set_rng_state(before, torch.device("cuda"))
assert torch.equal(first, torch.rand(2))
torch.manual_seed(7)
assert torch.equal(drawn, torch.rand(2))
"""
    done = run(tmp_path, code)
    assert done.returncode == 0, done.stderr


def test_an_optimizer_goes_on_as_if_never_stopped_where_its_count_is_shared(tmp_path):
    """As Megatron's distributed optimizer loads: states asked for, one count for all, old counts back."""
    code = """
import torch
def steps(weights, optimizer, numbers):
    for number in numbers:
        for one in weights:
            one.grad = torch.full_like(one, float(number + 1))
        optimizer.step()
def fresh(values):
    weights = [torch.nn.Parameter(value.clone()) for value in values]
    return weights, torch.optim.AdamW(weights, lr=0.1)
start = [torch.tensor([1.0, 2.0]), torch.tensor([3.0])]
whole, optimizer = fresh(start)
steps(whole, optimizer, range(3))
values, saved = [one.detach().clone() for one in whole], optimizer.state_dict()
moments = [{k: v.clone() for k, v in state.items()} for state in saved["state"].values()]
steps(whole, optimizer, range(3, 6))

again, optimizer = fresh(values)
asked = optimizer.state_dict()
assert [state["step"].item() for state in asked["state"].values()] == [0, 0]
old = [state["step"] for state in asked["state"].values()]
one_count = torch.tensor(3.0)
for state in asked["state"].values():
    state["step"] = one_count
optimizer.load_state_dict(asked)
for weights, state, count in zip(again, moments, old):
    for name in ("exp_avg", "exp_avg_sq"):
        optimizer.state[weights][name].copy_(state[name])
    optimizer.state[weights]["step"].copy_(count)
steps(again, optimizer, range(3, 6))
assert all(torch.equal(one, other) for one, other in zip(whole, again))
"""
    done = run(tmp_path, code)
    assert done.returncode == 0, done.stderr


def test_what_the_program_starts_does_not_tell_again_and_an_unknown_deed_is_refused(tmp_path):
    code = "import subprocess, sys, torch; subprocess.run([sys.executable, '-c', 'import torch'], check=True)"
    listed = {"torch.cuda.synchronize": "nothing"}
    assert run(tmp_path, code, listed).stderr.count("stand-ins serve torch.cuda.synchronize\n") == 1
    assert (
        "ValueError: no stand-in does `magic`"
        in run(tmp_path, "import torch", {"torch.tensor": "magic"}).stderr
    )


def test_nothing_is_served_where_there_is_cuda(tmp_path):
    site = Path(dsforge.rank.__file__).with_name("site")
    code = f"""
import sys, torch
sys.path.insert(0, {str(site)!r})
import cpu_device
torch.cuda.is_available = lambda: True
before = torch.tensor
cpu_device.install({json.dumps(LISTED)})
assert torch.tensor is before
"""
    done = run(tmp_path, code, {})
    assert (done.returncode, done.stderr) == (0, "")
    assert STAND_INS not in variables(made(), environ(tmp_path))


def test_a_module_is_served_only_without_the_package_that_it_needs(tmp_path):
    kernels = tmp_path / "mine" / "kernels.py"
    kernels.parent.mkdir()
    kernels.write_text("import absent\n")
    added = variables(made(stubs=("kernels:absent",)), environ(tmp_path))
    full = {**os.environ, **added, "PYTHONPATH": f"{added['PYTHONPATH']}{os.pathsep}{kernels.parent}"}

    def imported() -> tuple[str, str]:
        argv = [sys.executable, "-c", "import kernels; print(type(kernels).__name__)"]
        done = subprocess.run(argv, env=full, capture_output=True, text=True, check=True)
        return done.stdout, done.stderr

    assert imported() == ("_StandIn\n", "dsforge: a stand-in serves the import of kernels\n")
    (kernels.parent / "absent.py").touch()
    assert imported() == ("module\n", "")
