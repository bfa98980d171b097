"""A request to stop, whoever gets it: one checkpoint more, every rank `stopped`, and a way on from there."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dsforge.base import processes
from dsforge.base.processes import ProcessId
from dsforge.records.checkpoint import whole_checkpoints
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import ExitRecord, parse_line, read_lines
from tests.launch_support.recipe_runs import RECIPE, RecipeRun, wait_until

pytestmark = pytest.mark.e2e

STEPS = 200


def launcher_of(run: RecipeRun) -> ProcessId | None:
    return processes.identify(processes.parent_of(run.wrapper(0).pid) or 0)


WHO = {
    "dsforge": lambda run: processes.identify(run.process.pid),
    "runner": lambda run: run.state().launcher,
    "launcher": launcher_of,
    "wrapper": lambda run: run.wrapper(0),
    "trainer": lambda run: run.trainer(1),
}


@pytest.fixture(scope="module")
def undisturbed(lasting_job, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    run = lasting_job(tmp_path_factory.mktemp("undisturbed"), "parallel.pp=2", f"train.steps={STEPS}")
    code, result, err = run.end()
    assert code == 0, err
    return result["losses"]


@pytest.mark.parametrize(
    ("layout", "who", "tolerance"),
    [
        ("pp", "dsforge", 0.0),
        ("pp", "runner", 0.0),
        ("tp", "trainer", 1e-5),
        ("dp", "launcher", 1e-5),
        ("dp", "wrapper", 1e-5),
    ],
)
def test_whoever_is_told_to_stop_a_checkpoint_is_made_and_gone_on_from(
    undisturbed, job, tmp_path, layout, who, tolerance
):
    words = (f"parallel.{layout}=2", f"train.steps={STEPS}", "launch.restarts=2")
    first = job(tmp_path / "job", *words)
    first.until_step(20)
    assert processes.send_signal(WHO[who](first), signal.SIGTERM)
    if who == "dsforge":
        first.process.send_signal(signal.SIGTERM)  # schedulers repeat it
    code, result, err = first.end()
    assert (code, result["attempts"], result["exit"]["kind"]) == (143, 1, "terminated"), err
    assert first.state().state == "stopped"
    records = first.exits()
    assert {rank: (record.cause, record.code) for rank, record in records.items()} == {
        0: ("stopped", 143),
        1: ("stopped", 143),
    }
    done = len(first.metrics(1))
    assert 20 <= done < STEPS
    ((step, folder),) = whole_checkpoints(first.run_dir.checkpoints)
    assert step == done
    reason, command = result["exit"]["message"].splitlines()
    assert reason.endswith(f"the checkpoint of step {step} is {folder}")
    (event,) = [line for line in first.events(1) if line.source == "supervisor" and line.name == "stopped"]
    assert event.data == {
        "step": step,
        "folder": str(folder),
        "command": command.removeprefix("go on with: "),
    }
    assert command in err

    second = job(tmp_path / "job", *shlex.split(event.data["command"])[3:])
    code, result, err = second.end()
    assert code == 0, err
    assert result["losses"] == pytest.approx(undisturbed[step:], abs=tolerance, rel=0.0)
    assert [line.step for line in second.metrics(1)] == list(range(step + 1, STEPS + 1))


def test_ctrl_c_at_a_bundle_run_by_hand_saves_and_stops(tmp_path):
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    words = [sys.executable, "-m", "dsforge.cli", "render", "recipe.yaml", "--out", "bundle"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    programs = str(Path(sys.executable).parent)
    process = subprocess.Popen(
        ["bash", "bundle/launch.sh"],
        cwd=tmp_path,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "DS_ACCELERATOR": "cpu",
            "PATH": f"{programs}:{os.environ['PATH']}",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    records = tmp_path / "dsforge-run"
    attempt = AttemptDir(records / "attempt-1")
    try:
        wait_until(lambda: attempt.metrics.read_text().count("\n") >= 5)
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does
        wait_until(lambda: len(exits(attempt)) == 2)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert [record.cause for record in exits(attempt)] == ["stopped", "stopped"]
    ((step, _),) = whole_checkpoints(records / "checkpoints")
    assert step == attempt.metrics.read_text().count("\n")


def exits(attempt: AttemptDir) -> list[ExitRecord]:
    lines = [parse_line(line) for _, line in read_lines(attempt.rank_stream(0))]
    return [line for line in lines if isinstance(line, ExitRecord)]
