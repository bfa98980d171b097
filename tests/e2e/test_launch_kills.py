"""What happens when processes of a run are killed or signalled: all ranks end, the cause is named."""

from __future__ import annotations

import json
import signal

import pytest

from dsforge.base import processes

pytestmark = pytest.mark.e2e

FOR_EVER = {"TINY_STEPS": "0", "TINY_CHILD": "1"}


@pytest.mark.parametrize("which", ["trainer", "wrapper"])
def test_kill_9_of_one_rank_names_rank_and_signal(supervise, which):
    run = supervise(environ=FOR_EVER)
    run.until_training()
    run.kill(getattr(run, which)(1))
    outcome = run.outcome()
    assert (outcome["kind"], outcome["code"]) == ("rank_killed", 137)
    assert (outcome["rank"], outcome["signal"]) == (1, 9)
    assert "rank 1 on host " in outcome["message"]
    assert "SIGKILL" in outcome["message"]


def test_kill_9_of_the_node_launcher_is_not_success(supervise):
    run = supervise(environ=FOR_EVER)
    run.until_training()
    launcher = processes.parent_of(run.wrapper(0).pid)
    run.kill(processes.identify(launcher))
    outcome = run.outcome()
    assert (outcome["kind"], outcome["code"]) == ("launcher_died", 137)
    assert f"deepspeed.launcher.launch (pid {launcher}) was killed by SIGKILL" in outcome["message"]
    assert {record.cause for record in run.exits().values()} == {"parent_died"}


def test_kill_9_of_the_runner_ends_the_ranks(supervise):
    run = supervise(environ=FOR_EVER)
    run.until_training()
    runner = run.state().launcher
    run.kill(runner)
    outcome = run.outcome()
    assert (outcome["kind"], outcome["code"]) == ("launcher_died", 137)
    assert f"the deepspeed runner (pid {runner.pid}) was killed by SIGKILL" in outcome["message"]


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [
        (signal.SIGINT, "interrupted", 130),
        (signal.SIGTERM, "terminated", 143),
        (signal.SIGHUP, "terminated", 129),
    ],
)
def test_a_signal_to_dsforge_stops_the_run(supervise, number, kind, code):
    run = supervise(plan={"restarts": 2}, environ=FOR_EVER)
    run.until_training()
    run.process.send_signal(number)
    outcome = run.outcome()
    assert (outcome["kind"], outcome["code"], outcome["attempts"]) == (kind, code, 1)
    assert run.state().state == "stopped"
    assert {record.cause for record in run.exits().values()} == {"stopped"}


def test_a_second_ctrl_c_does_not_wait_for_a_deaf_trainer(supervise):
    run = supervise(environ={**FOR_EVER, "TINY_DEAF": "1"})
    run.until_training()
    run.process.send_signal(signal.SIGINT)
    run.until(lambda: run.state().state == "stopping")
    run.process.send_signal(signal.SIGINT)
    outcome = run.outcome()
    assert (outcome["kind"], outcome["code"]) == ("interrupted", 130)
    assert run.exits() == {}


def test_the_launchers_end_when_dsforge_is_killed_before_there_are_ranks(supervise):
    run = supervise(environ=FOR_EVER)
    # The runner takes seconds to import torch; the guard and the runner are all there is.
    run.until(lambda: run.state().state == "running" and len(run.left()) >= 2)
    assert run.reports() == {}
    run.process.kill()
    run.process.wait()
    run.until(lambda: run.left() == [])
    assert run.reports() == {}


def test_a_run_whose_folder_vanishes_ends_and_makes_no_other(supervise):
    run = supervise(environ=FOR_EVER)
    run.until_training()
    run_dir = run.run_dir.path
    run_dir.rename(run.folder / "moved")
    assert run.process.wait(120) == 3
    code, message = json.loads((run.folder / "error.json").read_text())
    assert (code, message) == ("DSF211", "the folder of the run vanished while it ran; its ranks were ended")
    assert processes.carrying("DSFORGE_RUN_ID", run_dir.name) == []
    assert not (run_dir / "state.json").exists()


def test_ranks_end_when_their_supervisor_is_killed(supervise):
    run = supervise(environ=FOR_EVER)
    run.until_training()
    run.process.kill()
    run.process.wait()
    run.until(lambda: run.left() == [])
    causes = {record.cause for record in run.exits().values()}
    # The first rank to notice ends, and the node's launcher then stops the others.
    assert "lease_lost" in causes
    assert causes <= {"lease_lost", "stopped"}
    assert len(run.exits()) == 2
    assert run.state().state == "running"  # nobody was left to say otherwise: readers see it as lost
