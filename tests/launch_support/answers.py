"""What hosts answer before a run, made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dsforge.base.errors import Finding
from dsforge.launch.comparison import compare
from dsforge.launch.comparison.known import Known
from dsforge.launch.survey import Seen
from dsforge.plan.types import Plan, Stage
from dsforge.records.probe import (
    Announced,
    FileMark,
    Folder,
    Gpu,
    HostFacts,
    Interface,
    Listening,
    Question,
)
from tests.launch_support.plans import make_plan

RUNS = "/shared/runs"
TOKEN = "0123"
DATA = "/shared/data/corpus.bin"
STATE_BYTES = 16 * 10**9
PYTHON = "/venv/bin/python"
H100 = "NVIDIA H100 80GB HBM3"
GPU = Gpu(H100, "550.54", 0, ())


def facts(**changes: Any) -> HostFacts:
    """Return what a host says that has all that a run needs."""
    well = HostFacts(
        host="node-1",
        machine="boot/pid:[1]",
        versions={"python": "3.11.7", "torch": "2.13.0", "dsforge": "1"},
        gpus=(),
        gpu_problem=None,
        xids=(),
        memory_bytes=10**12,
        available_bytes=10**12,
        shm_bytes=10**11,
        open_files=10**6,
        locked_memory_bytes=None,
        has_fabric=False,
        folders=(Folder(RUNS, TOKEN, None, 10**13, 10**6),),
        files=(FileMark(DATA, 100, "aa"),),
        interfaces=(Interface("lo", ("127.0.0.1",)), Interface("eth0", ("192.0.2.10",))),
        announced=Announced("GLOO_SOCKET_IFNAME", "eth0", "192.0.2.10", ()),
        master_addresses=("192.0.2.10",),
        route="eth0",
        leftovers=(),
        compilers={"nvcc": True, "c++": True, "ninja": True},
        built_ops=(),
    )
    return replace(well, **changes)


def hosts(*answers: HostFacts | None, **changes: Any) -> tuple[Seen, ...]:
    """Return node-1, node-2 and so on with these answers; the first listens where the ranks meet."""
    seen = []
    for node, answer in enumerate(answers):
        is_own = answer is not None and answer.machine == "boot/pid:[1]"
        there = replace(answer, machine=f"boot/pid:[{node}]") if answer is not None and is_own else answer
        one = Seen(f"node-{node + 1}", node, there)
        one.listening = Listening(40_000, 29_500 if node == 0 else None, None)
        seen.append(one)
    for name, value in changes.items():
        setattr(seen[-1], name, value)
    return tuple(seen)


def plan_on(gpu: str = "cpu", gpus_per_node: int = 2, nodes: int = 2) -> Plan:
    plan = make_plan(world_size=gpus_per_node * nodes, accelerator="cpu" if gpu == "cpu" else "cuda")
    stage = Stage(
        stage=0,
        first_layer=0,
        layers=2,
        has_embedding=True,
        has_head=True,
        parameters=10**9,
        parameters_by_component={},
        state_bytes_per_rank={"parameters": STATE_BYTES},
        fp32_gradient_sum_bytes_per_rank=0,
    )
    changes = {"nodes": nodes, "gpus_per_node": gpus_per_node, "stages": (stage,)}
    layout = plan.layout.model_copy(update=changes)
    return plan.model_copy(update={"layout": layout, "gpu": gpu})


def compared(seen: tuple[Seen, ...], plan: Plan | None = None, **changes: Any) -> list[Finding]:
    """Return what is found, on a launching host that has all that a run needs."""
    plan = plan or plan_on()
    ops = changes.pop("needed_ops", ())
    known = Known(
        plan=plan,
        question=Question({}, plan.accelerator == "cuda", "node-1", {RUNS: "token"}, (DATA,), "/ops"),
        here=facts(),
        seen=seen,
        tokens={RUNS: TOKEN},
        room={RUNS: 10**9},
        port=None,
        dead_leases=frozenset(),
        python=PYTHON,
        seconds=30.0,
    )
    return list(compare(replace(known, **changes), ops))


def told(findings: list[Finding]) -> list[tuple[str, str | None, str]]:
    """Return code, host and message of findings."""
    return [(one.code, one.place.host if one.place else None, one.message) for one in findings]
