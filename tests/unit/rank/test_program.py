"""The command of an external program: paths, configuration, stand-ins for imports."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsforge.rank.metrics import LogReader
from dsforge.rank.program import command, variables
from dsforge.records.program import ProgramFile, read_program, resolve
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import EvalLine, Event, MetricsLine, parse_line, read_lines
from tests.support.recipes import ROOT

STEP = r"step (?P<step>\d+) loss (?P<loss>\S+)"


def made(**changes: object) -> ProgramFile:
    facts = {
        "flavour": "script",
        "folder": "code",
        "entry": "train.py",
        "arguments": (),
        "bases": {},
        "patterns": {"step": STEP, "validation": "never (?P<step>x)(?P<loss>x)"},
        "metrics_rank": 0,
        "tokens_per_step": 100,
    }
    return ProgramFile(**{**facts, **changes})  # type: ignore[arg-type]  # values are of the fields' types


def environ(tmp_path: Path) -> dict[str, str]:
    return {
        "DSFORGE_ROOT": str(tmp_path / "recipes"),
        "DSFORGE_PLAN": str(tmp_path / "bundle" / "plan.json"),
        "DSFORGE_CHECKPOINT_DIR": str(tmp_path / "kept"),
        "DSFORGE_CORPUS": "/cache/corpus",
    }


def test_paths_are_put_together_where_the_rank_runs(tmp_path):
    bases = {"1": "root", "2": "bundle", "3": "checkpoints", "4": "corpus", "5": "root"}
    program = made(arguments=("--a", "../d $x", "ds_config.json", ".", "-valid", "/abs"), bases=bases)
    argv = command(program, environ(tmp_path))
    assert argv[2:] == [
        str(tmp_path / "recipes" / "code" / "train.py"),
        "--a",
        str(tmp_path / "d $x"),
        str(tmp_path / "bundle" / "ds_config.json"),
        str(tmp_path / "kept"),
        "/cache/corpus-valid",
        "/abs",
    ]


def test_a_base_that_is_not_known_is_named():
    with pytest.raises(ValueError, match="DSFORGE_CORPUS is not set"):
        resolve("", "corpus", {})


def test_a_configuration_travels_in_one_argument(tmp_path):
    program = made(
        configuration={"save": ".", "optimizer": {"lr": 0.1}, "train_data_paths": ["a", "b"]},
        configuration_bases={"save": "checkpoints", "train_data_paths": "root"},
        configuration_option="--megatron_config",
    )
    option, encoded = command(program, environ(tmp_path))[-2:]
    assert option == "--megatron_config"
    assert json.loads(base64.urlsafe_b64decode(encoded)) == {
        "save": str(tmp_path / "kept"),
        "optimizer": {"lr": 0.1},
        "train_data_paths": [str(tmp_path / "recipes" / "a"), str(tmp_path / "recipes" / "b")],
    }
    assert program.configuration is not None
    assert program.configuration["save"] == "."


def test_the_file_reads_as_it_was_written(tmp_path):
    program = made(arguments=("x", "é\n$"), bases={"0": "root"}, stubs=("apex",))
    (tmp_path / "program.json").write_text(program.to_json())
    assert read_program(tmp_path / "program.json") == program
    (tmp_path / "program.json").write_text('{"flavour": "script"}')
    with pytest.raises(ValueError, match="names no program"):
        read_program(tmp_path / "program.json")


def run(tmp_path: Path, code: str, *stubs: str) -> subprocess.CompletedProcess[str]:
    added = variables(made(stubs=stubs), {**environ(tmp_path), "PYTHONPATH": f"{tmp_path / 'mine'}:{ROOT}"})
    full = {**os.environ, **added}
    return subprocess.run([sys.executable, "-c", code], env=full, capture_output=True, text=True, check=False)


def test_a_missing_import_is_served_told_and_fails_when_used(tmp_path):
    code = "import apex.optimizers as a; print(a.__name__); a.FusedAdam()"
    done = run(tmp_path, code, "apex")
    assert done.stdout == "apex.optimizers\n"
    assert "a stand-in serves the import of apex\n" in done.stderr
    assert "a stand-in serves the import of apex.optimizers\n" in done.stderr
    assert "RuntimeError: apex.optimizers.FusedAdam was called" in done.stderr


LOADS = """
import abc, typing
import absent.deep.er as er
from absent.deep import Base, deco, LIMIT

class A(Base): pass
class B(Base, abc.ABC): kind = er.register("b")
class C(er.Outer.Inner, typing.Generic[typing.TypeVar("T")]): pass
@deco
def f(x=LIMIT, y=er.made(1)): pass
@er.jit(blocks=3)
def g(a: er.T | None = None, b: typing.Optional[er.List[int]] = None) -> None: pass

modes = {er.mode.fast: 1}
assert isinstance(A, type) and issubclass(B, Base) and not issubclass(int, Base)
assert not isinstance(1, (Base, er.T)) and er.mode.fast is er.mode.fast
assert not hasattr(er, "__version__")

def used(what):
    try:
        what()
    except RuntimeError as error:
        return str(error)

for what in (A, B, C, f, g, lambda: er.amp.scale(1), lambda: 1 if LIMIT else 2):
    print(used(what))
"""


def test_modules_load_with_stand_ins_and_whoever_uses_one_is_told(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "loads.py").write_text(LOADS)
    done = run(tmp_path, "import loads", "absent")
    assert done.stdout.splitlines() == [
        "absent.deep.Base was called, and absent.deep is not installed",
        "absent.deep.Base was called, and absent.deep is not installed",
        "absent.deep.er.Outer.Inner was called, and absent.deep.er is not installed",
        "absent.deep.deco(...) was called, and absent.deep is not installed",
        "absent.deep.er.jit(...)(...) was called, and absent.deep.er is not installed",
        "absent.deep.er.amp.scale was called, and absent.deep.er is not installed",
        "absent.deep.LIMIT was asked whether it is true, and absent.deep is not installed",
    ], done.stderr


def test_a_program_finds_this_python_and_how_many_ranks_are_here(tmp_path):
    given = {**environ(tmp_path), "PATH": "/bin"}
    assert variables(made(), given | {"LOCAL_SIZE": "4"})["LOCAL_WORLD_SIZE"] == "4"
    assert variables(made(), given | {"LOCAL_WORLD_SIZE": "2"})["LOCAL_SIZE"] == "2"
    assert "LOCAL_SIZE" not in variables(made(), given)
    assert variables(made(), given)["PATH"].split(os.pathsep) == [str(Path(sys.executable).parent), "/bin"]


def test_what_is_installed_or_not_named_is_left_alone(tmp_path):
    done = run(tmp_path, "import json; print(json.dumps(1)); import apex", "json")
    assert done.stdout == "1\n"
    assert "ModuleNotFoundError: No module named 'apex'" in done.stderr
    assert "stand-in" not in done.stderr


def test_a_question_is_answered_with_the_truth(tmp_path):
    code = "import importlib.util as u; print(u.find_spec('apex')); import apex; print(apex.__name__)"
    assert run(tmp_path, code, "apex").stdout == "None\napex\n"


def test_another_sitecustomize_still_runs(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("print('theirs')")
    assert run(tmp_path, "pass", "apex").stdout == "theirs\n"


def test_a_program_writes_its_stacks_when_it_is_asked(tmp_path):
    code = "import os\nfrom dsforge.base import processes, stack_dump\n"
    code += "def reads():\n    return stack_dump.ask(processes.identify(os.getpid()))\nprint(reads())"
    assert ", line 4 in reads\n" in run(tmp_path, code).stdout


def lines(path: Path) -> list[object]:
    return [parse_line(line) for _, line in read_lines(path)]


def test_lines_become_metrics_and_what_is_not_finite_an_event(tmp_path):
    attempt = AttemptDir(tmp_path)
    reader = LogReader(made(), attempt, 0)
    reader.start()
    reader.take(["noise", "step 1 loss 2.5", "step 2 loss nan"])
    (step,) = lines(attempt.metrics)
    assert isinstance(step, MetricsLine)
    assert (step.step, step.loss, step.learning_rate, step.grad_norm) == (1, 2.5, None, None)
    joined, wrong = lines(attempt.events)
    assert isinstance(joined, Event)
    assert isinstance(wrong, Event)
    assert (joined.name, wrong.name, wrong.data) == ("joined", "not_finite", {"step": 2})


def test_what_is_not_known_is_not_recorded_as_a_figure(tmp_path, monkeypatch):
    """Of the first step start-up would be counted, of one behind a validation the validation."""
    clock = iter([10.0, 12.0, 13.0, 14.0])
    monkeypatch.setattr("dsforge.rank.metrics.time.monotonic", lambda: next(clock))
    attempt = AttemptDir(tmp_path)
    program = made(
        patterns={"step": STEP, "validation": r"valid (?P<step>\d+) (?P<loss>\S+)"}, eval_samples=64
    )
    rows = ["step 1 loss 3", "step 5 loss 2", "valid 5 2.5", "step 6 loss 1", "step 7 loss 1"]
    LogReader(program, attempt, 0).take(rows)
    found = lines(attempt.metrics)
    steps = [one for one in found if isinstance(one, MetricsLine)]
    assert [(one.step, one.step_seconds, one.tokens_per_second) for one in steps] == [
        (1, None, None),
        (5, 0.5, 200.0),
        (6, None, None),
        (7, 1.0, 100.0),
    ]
    assert {one.memory_bytes for one in steps} == {None}
    (judged,) = [one for one in found if isinstance(one, EvalLine)]
    assert (judged.step, judged.loss, judged.samples, judged.seconds) == (5, 2.5, 64, None)


def test_only_the_rank_that_prints_is_read(tmp_path):
    attempt = AttemptDir(tmp_path)
    reader = LogReader(made(metrics_rank=0), attempt, 1)
    reader.start()
    reader.take(["step 1 loss 2.5"])
    assert not attempt.metrics.exists()
    assert not attempt.events.exists()
