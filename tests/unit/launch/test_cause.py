from __future__ import annotations

from dataclasses import replace

import pytest

from dsforge.base.exits import ExitKind
from dsforge.launch.cause import Evidence, LostHost, find_cause
from dsforge.records.streams import ExitRecord, WorldReport


def report(rank: int) -> WorldReport:
    return WorldReport(100.0, rank, rank, 4, "node-a", 0, 1000 + rank, 1, 2000 + rank, 1)


def ended(rank: int, cause: str, code: int, at: float, **more) -> ExitRecord:
    return ExitRecord(time=at, rank=rank, code=code, cause=cause, **more)


@pytest.fixture
def evidence() -> Evidence:
    return Evidence(
        world_size=4,
        reports={rank: report(rank) for rank in range(4)},
        exits={},
        vanished={},
        tails={},
        lost_nodes={},
        runner="the deepspeed runner",
        runner_pid=50,
        runner_code=1,
        node_launcher="deepspeed.launcher.launch",
        node_launcher_pid=51,
        launcher_log=(),
        last_step=7,
    )


def with_exits(evidence: Evidence, *records: ExitRecord, **changes) -> Evidence:
    return replace(evidence, exits={record.rank: record for record in records}, **changes)


def test_the_earliest_failure_counts_and_what_followed_does_not(evidence):
    cause = find_cause(
        with_exits(
            evidence,
            # Its process ended last, yet its traceback came first.
            ended(2, "exception", 3, at=130.0, failed_at=110.0, tail=("", "ValueError: bad shard")),
            ended(0, "exception", 1, at=111.0, failed_at=110.5),
            ended(1, "stopped", 143, at=109.0, signal=15),
            ended(3, "parent_died", 143, at=105.0),
        )
    )
    assert (cause.kind, cause.rank, cause.code, cause.signal) == (ExitKind.RANK_FAILED, 2, 3, None)
    assert cause.message == "rank 2 on host node-a exited with code 3 after step 7\n  ValueError: bad shard"


def test_a_killed_trainer_is_named_by_its_signal(evidence):
    cause = find_cause(
        with_exits(
            evidence,
            ended(1, "signal", 139, at=110.0, signal=11, failed_at=110.0),
            ended(0, "exception", 1, at=110.2, failed_at=110.1),
        )
    )
    assert (cause.kind, cause.rank, cause.code, cause.signal) == (ExitKind.RANK_KILLED, 1, 139, 11)
    assert "SIGSEGV" in cause.message


def test_a_killed_trainer_is_the_cause_although_what_it_broke_was_recorded_first(evidence):
    cause = find_cause(
        with_exits(
            evidence,
            ended(1, "signal", 137, at=110.02, signal=9, failed_at=110.02),
            ended(0, "exception", 1, at=110.05, failed_at=110.0),
        )
    )
    assert (cause.kind, cause.rank, cause.signal) == (ExitKind.RANK_KILLED, 1, 9)


def test_a_vanished_wrapper_is_the_cause_although_it_is_noticed_late(evidence):
    cause = find_cause(
        with_exits(
            evidence,
            ended(0, "exception", 1, at=110.0, failed_at=110.0),
            vanished={3: 109.9},
            tails={3: ["step 7"]},
        )
    )
    assert (cause.kind, cause.rank, cause.code, cause.signal) == (ExitKind.RANK_KILLED, 3, 137, 9)
    assert cause.tail == ("step 7",)


def test_a_wrapper_that_vanished_long_after_a_failure_only_followed(evidence):
    cause = find_cause(
        with_exits(evidence, ended(0, "exception", 5, at=110.0, failed_at=110.0), vanished={3: 115.0})
    )
    assert (cause.rank, cause.code) == (0, 5)


@pytest.mark.parametrize(
    ("returned", "kind", "code", "number"),
    [(-6, ExitKind.RANK_KILLED, 134, 6), (3, ExitKind.RANK_FAILED, 3, None)],
)
def test_the_launcher_knows_how_a_single_vanished_wrapper_ended(evidence, returned, kind, code, number):
    log = [f"[launch.py] ['python'] exits with return code = {returned}"]
    cause = find_cause(replace(evidence, vanished={1: 110.0}, launcher_log=log))
    assert (cause.kind, cause.rank, cause.code, cause.signal) == (kind, 1, code, number)


def test_a_code_that_another_rank_left_says_nothing_of_the_vanished_one(evidence):
    log = ["[launch.py] ['python'] exits with return code = 1"]
    followed = ended(0, "exception", 1, at=110.3, failed_at=110.2)
    cause = find_cause(with_exits(evidence, followed, vanished={1: 110.0}, launcher_log=log))
    assert (cause.kind, cause.rank, cause.signal) == (ExitKind.RANK_KILLED, 1, 9)


def test_all_orphans_mean_a_killed_node_launcher(evidence):
    orphans = [ended(rank, "parent_died", 143, at=110.0) for rank in range(4)]
    cause = find_cause(with_exits(evidence, *orphans, runner_code=0))
    assert (cause.kind, cause.code, cause.signal) == (ExitKind.LAUNCHER_DIED, 137, 9)
    assert "deepspeed.launcher.launch (pid 51)" in cause.message


def test_a_killed_runner_is_named(evidence):
    stopped = [ended(rank, "stopped", 143, at=110.0, signal=15) for rank in range(4)]
    cause = find_cause(with_exits(evidence, *stopped, runner_code=-15))
    assert (cause.kind, cause.code, cause.signal) == (ExitKind.LAUNCHER_DIED, 143, 15)
    assert "runner (pid 50) was killed by SIGTERM" in cause.message


def test_a_rank_that_somebody_else_stopped_is_not_silent(evidence):
    records = [
        ended(2, "stopped", 143, at=109.0, signal=15),
        ended(1, "stopped", 143, at=110.0, signal=15),
    ]
    cause = find_cause(with_exits(evidence, *records))
    assert (cause.kind, cause.rank, cause.signal) == (ExitKind.RANK_KILLED, 2, 15)
    assert "stopped from outside" in cause.message


def test_a_launcher_that_ends_early_is_never_success(evidence):
    cause = find_cause(
        replace(evidence, runner_code=0, reports={}, last_step=None, launcher_log=["ImportError: x"])
    )
    assert (cause.kind, cause.code) == (ExitKind.LAUNCHER_DIED, 4)
    assert "4 of 4 ranks left no exit record before the first step" in cause.message
    assert "ImportError: x" in cause.message


def test_a_world_that_differs_outranks_everything(evidence):
    record = ended(1, "world_mismatch", 4, at=120.0, message="started 1 ranks")
    cause = find_cause(with_exits(evidence, record, ended(0, "exception", 1, at=1.0)))
    assert (cause.kind, cause.code, cause.rank) == (ExitKind.WORLD_MISMATCH, 4, 1)


def test_before_the_first_step_the_code_is_4_with_rank_and_signal_kept(evidence):
    cause = find_cause(with_exits(evidence, ended(1, "signal", 137, at=110.0, signal=9)))
    early = cause.as_exit(stepped=False)
    assert (early.code, early.kind, early.rank, early.signal) == (4, "before_first_step", 1, 9)
    late = cause.as_exit(stepped=True)
    assert (late.code, late.kind, late.host) == (137, "rank_killed", "node-a")


def test_a_rank_that_was_told_to_stop_first_is_the_cause(evidence):
    asked = ended(2, "stopped", 143, at=112.0, failed_at=109.0, signal=15, message="told to stop by SIGTERM")
    broken = ended(0, "exception", 1, at=111.0, failed_at=110.0)
    cause = find_cause(with_exits(evidence, asked, broken))
    assert (cause.kind, cause.code, cause.rank, cause.signal) == (ExitKind.TERMINATED, 143, 2, 15)
    assert cause.message == "rank 2 on host node-a was told to stop by SIGTERM"


def test_a_rank_that_was_told_to_stop_because_another_had_failed_is_not(evidence):
    asked = ended(0, "stopped", 143, at=112.0, failed_at=110.5, signal=15)
    killed = ended(1, "signal", 137, at=110.8, signal=9, failed_at=110.7)
    assert find_cause(with_exits(evidence, asked, killed)).kind is ExitKind.RANK_KILLED
    vanished = find_cause(with_exits(evidence, asked, vanished={3: 110.6}))
    assert (vanished.kind, vanished.rank) == (ExitKind.RANK_KILLED, 3)


def test_ranks_that_go_with_what_held_them_name_the_lost_host(evidence):
    gone = ended(1, "parent_died", 143, at=108.0, failed_at=107.0)
    followed = ended(0, "exception", 1, at=108.0, failed_at=107.5)
    told = ended(2, "stopped", 143, at=107.1, failed_at=106.0, signal=15)
    lost = {0: LostHost("node2", "lost slurmstepd,")}
    cause = find_cause(with_exits(evidence, gone, followed, told, lost_nodes=lost))
    assert (cause.kind, cause.rank, cause.host, cause.code) == (ExitKind.HOST_LOST, 1, "node2", 137)
    assert cause.message.startswith("host node2 lost slurmstepd, after step 7")
    # Slurm tells all ranks to stop when one of their nodes is down.
    down = find_cause(with_exits(evidence, told, lost_nodes={0: LostHost("node2", "failed")}))
    assert (down.kind, down.host) == (ExitKind.HOST_LOST, "node2")


def test_ranks_that_vanish_with_a_killed_runner_are_not_the_cause(evidence):
    killed = replace(evidence, vanished={0: 109.0, 1: 109.1}, runner="srun", runner_code=-9, runner_signal=9)
    cause = find_cause(killed)
    assert (cause.kind, cause.code, cause.rank) == (ExitKind.LAUNCHER_DIED, 137, None)
    assert cause.message.startswith("srun (pid 50) was killed by SIGKILL after step 7")
    failed = replace(killed, exits={2: ended(2, "exception", 3, at=108.0)})
    assert find_cause(failed).rank == 2
