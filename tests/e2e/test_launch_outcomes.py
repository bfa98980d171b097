"""How runs end through the real deepspeed launcher: success, failures, a hang, a wrong world, a restart."""

from __future__ import annotations

import json
import signal
import socket

import pytest

pytestmark = pytest.mark.e2e


def test_success_is_an_exit_record_from_every_rank(supervise):
    run = supervise(environ={"TINY_CHILD": "1"})
    outcome = run.outcome()
    assert (outcome["kind"], outcome["code"], outcome["attempts"]) == ("ok", 0, 1)
    assert outcome["losses"] == {"1": 4.0, "2": 2.0, "3": 4.0 / 3}
    assert {rank: record.cause for rank, record in run.exits().items()} == {0: "ok", 1: "ok"}
    assert {rank: report.local_rank for rank, report in run.reports().items()} == {0: 0, 1: 1}
    log = run.attempt.log(0).read_text()
    assert sorted(log.splitlines()) == ["[rank 0] rank 0 is done", "[rank 1] rank 1 is done"]
    assert run.state().state == "succeeded"


def test_a_rank_that_raises_is_named_with_its_own_code(supervise):
    run = supervise(environ={"TINY_STEPS": "0", "TINY_FAIL_RANK": "1", "TINY_FAIL_STEP": "5"})
    outcome = run.outcome()
    assert (outcome["kind"], outcome["code"], outcome["rank"]) == ("rank_failed", 1, 1)
    assert outcome["signal"] is None
    assert "RuntimeError: rank 1 fails on purpose" in outcome["message"]
    assert run.exits()[0].cause == "stopped"


def test_a_failure_before_the_first_step_is_4_and_still_names_the_rank(supervise):
    run = supervise(environ={"TINY_FAIL_RANK": "0", "TINY_FAIL_STEP": "1", "TINY_STEPS": "0"})
    outcome = run.outcome()
    assert (outcome["kind"], outcome["code"], outcome["rank"]) == ("before_first_step", 4, 0)


def test_a_hang_is_ended_by_the_watchdog(supervise):
    run = supervise(
        plan={"watchdog_seconds": 5.0},
        environ={"TINY_STEPS": "0", "TINY_HANG_STEP": "3", "TINY_DEAF": "1", "TINY_CHILD": "1"},
    )
    outcome = run.outcome()
    assert (outcome["kind"], outcome["code"]) == ("watchdog", 124)
    assert "the last step was 2" in outcome["message"]


def test_ranks_that_do_not_join_are_not_waited_for(supervise):
    # They report, but no event and no step says that the process group stands.
    run = supervise(
        plan={"rendezvous_timeout_seconds": 8.0}, environ={"TINY_STEPS": "0", "TINY_HANG_STEP": "1"}
    )
    outcome = run.outcome()
    assert (outcome["kind"], outcome["code"]) == ("before_first_step", 4)
    assert "within launch.rendezvous_timeout, 8 s" in outcome["message"]


def test_a_listener_that_fails_loses_its_words_and_not_the_run(supervise):
    """Nor does a rendezvous that may take for ever; the ranks meet at the caller's port."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    run = supervise(
        plan={"rendezvous_timeout_seconds": 0.0},
        environ={"TINY_BROKEN_LISTENER": "1", "MASTER_PORT": str(port), "TINY_SAY": "MASTER_PORT"},
    )
    assert run.outcome()["kind"] == "ok"
    assert not (run.folder / "progress.jsonl").exists()
    assert f"[rank 0] MASTER_PORT={port}" in run.attempt.log(0).read_text()


def test_ranks_that_are_not_the_planned_world_are_stopped(supervise):
    run = supervise(bundle={"options": "--num_gpus 1"})
    outcome = run.outcome()
    assert (outcome["kind"], outcome["code"], outcome["rank"]) == ("world_mismatch", 4, 0)
    assert "started 1 ranks, the plan has 2" in outcome["message"]
    assert run.reports() == {}


def test_a_hostfile_that_is_not_the_planned_world_starts_nothing(supervise):
    run = supervise(bundle={"slots": 1})
    assert run.process.wait(60) == 1
    code, message = json.loads((run.folder / "error.json").read_text())
    assert code == "DSF041"
    assert "1 slots, the recipe has cluster.gpus_per_node 2" in message
    assert not (run.folder / "runs").exists()


def test_a_killed_rank_is_restarted_and_an_exception_once_at_a_step(supervise):
    run = supervise(
        plan={"restarts": 9}, environ={"TINY_STEPS": "0", "TINY_FAIL_RANK": "0", "TINY_FAIL_STEP": "30"}
    )
    run.until_training()
    run.kill(run.trainer(1))
    outcome = run.outcome()
    assert (outcome["kind"], outcome["rank"], outcome["attempts"]) == ("rank_failed", 0, 3)
    first, second = run.state().restarts
    assert (first.attempt, first.reason, second.attempt, second.reason) == (2, "killed", 3, "program")
    assert first.why.startswith("rank 1 on host ")
    assert "killed by SIGKILL" in first.why
    assert run.run_dir.attempt(1).metrics.exists()
    assert run.run_dir.attempt(3).hostfile.read_text() == "localhost slots=2\n"
    end = run.state().exit
    assert end.reason == "program"
    assert end.not_restarted == "it would end the same way again: program, after step 29 as before"


def test_a_request_to_stop_ends_the_wait_for_the_next_attempt(supervise):
    run = supervise(plan={"restarts": 9, "restart_backoff_seconds": 60.0}, environ={"TINY_KILL_STEP": "2"})
    run.until(lambda: "attempt 3 starts in 60 s" in (run.folder / "progress.jsonl").read_text())
    assert run.left() == []
    run.process.send_signal(signal.SIGTERM)
    outcome = run.outcome()
    assert (outcome["kind"], outcome["code"], outcome["attempts"]) == ("terminated", 143, 2)
    assert outcome["message"].startswith("stopped by SIGTERM while it waited for its next attempt; ")
    assert (run.state().state, len(run.state().restarts)) == ("stopped", 1)


@pytest.mark.parametrize(
    ("raised", "reason"), [("MemoryError", "host_memory"), ("FloatingPointError", "numerics")]
)
def test_what_would_end_the_same_way_is_not_restarted(supervise, raised: str, reason: str):
    run = supervise(
        plan={"restarts": 3},
        environ={"TINY_RAISE": raised, "TINY_STEPS": "0", "TINY_FAIL_RANK": "1", "TINY_FAIL_STEP": "8"},
    )
    assert run.outcome()["attempts"] == 1
    end = run.state().exit
    why = f"it would end the same way again: {reason.replace('_', ' ')}"
    assert (end.reason, end.not_restarted) == (reason, why)


def test_a_kill_before_the_first_step_is_bad_luck_once_and_not_thrice(supervise):
    run = supervise(plan={"restarts": 9}, environ={"TINY_KILL_STEP": "1", "TINY_ONLY_ATTEMPT": "1"})
    outcome = run.outcome()
    assert (outcome["kind"], outcome["attempts"]) == ("ok", 2)
    run = supervise(plan={"restarts": 9}, environ={"TINY_KILL_STEP": "1"})
    outcome = run.outcome()
    assert (outcome["kind"], outcome["code"], outcome["attempts"]) == ("before_first_step", 4, 3)
