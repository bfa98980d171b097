from __future__ import annotations

import signal

import pytest

from dsforge.base.exits import ExitKind
from dsforge.launch.reasons import End, last_words, reason_in, reason_of, reason_of_rank
from dsforge.records.reasons import Reason
from dsforge.records.streams import ExitRecord


def raised(*lines: str) -> tuple[str, ...]:
    head = ("step 3", "Traceback (most recent call last):", '  File "train.py", line 3, in step')
    return (*head, *lines)


FAILED = [
    (raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."), Reason.OUT_OF_MEMORY),
    (raised("torch.cuda.OutOfMemoryError: CUDA out of memory."), Reason.OUT_OF_MEMORY),
    (raised("RuntimeError: CUDA error: out of memory"), Reason.OUT_OF_MEMORY),
    (raised("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling x"), Reason.OUT_OF_MEMORY),
    (raised("MemoryError"), Reason.HOST_MEMORY),
    (raised("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 3 GiB"), Reason.HOST_MEMORY),
    (
        raised("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
        Reason.HOST_MEMORY,
    ),
    (raised("OSError: [Errno 12] Cannot allocate memory"), Reason.HOST_MEMORY),
    (("terminate called after throwing an instance of 'std::bad_alloc'",), Reason.HOST_MEMORY),
    (
        raised("RuntimeError: DataLoader worker is killed: insufficient shared memory (shm)"),
        Reason.HOST_MEMORY,
    ),
    (raised("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"), Reason.HARDWARE),
    (raised("OSError: [Errno 5] Input/output error: '/data/x.bin'"), Reason.HARDWARE),
    (
        raised("torch.distributed.DistBackendError: NCCL error in: x.cpp:3, unhandled system error"),
        Reason.NETWORK,
    ),
    (raised("torch.distributed.DistNetworkError: the client socket has timed out"), Reason.NETWORK),
    (raised("RuntimeError: [../pair.cc:547] Connection closed by peer [10.77.0.2]:3"), Reason.NETWORK),
    (raised("ConnectionResetError: [Errno 104] Connection reset by peer"), Reason.NETWORK),
    (raised("RuntimeError: [gloo] Timed out waiting 600000ms for recv operation to complete"), Reason.HUNG),
    (
        raised("Exception: Current loss scale already at minimum - cannot decrease scale anymore."),
        Reason.NUMERICS,
    ),
    (raised("AssertionError: Rank 3: found NaN in local grad norm"), Reason.NUMERICS),
    (("error[DSF350]: the loss is nan at step 3 (host a, rank 1)", "  hint: lower it"), Reason.NUMERICS),
    (raised("ModuleNotFoundError: No module named 'apex'"), Reason.ENVIRONMENT),
    (raised("OSError: [Errno 28] No space left on device"), Reason.ENVIRONMENT),
    (("error[DSF330]: the checkpoint could not be written",), Reason.ENVIRONMENT),
    (("error[DSF331]: the checkpoint was saved under TP 2",), Reason.CONFIGURATION),
    (("error[DSF310]: the ranks did not meet",), Reason.NETWORK),
    (("error[DSF807]: the gradient of w differs in step 3: on rank 1",), Reason.RANKS_DIFFER),
    (("error[DSF808]: w differs after step 3: on rank 1",), Reason.RANKS_DIFFER),
    (("error[DSF809]: micro-batch 0 of replica 1 in step 4 holds the samples",), Reason.PROGRAM),
    (("usage: pretrain.py [-h]", "pretrain.py: error: unrecognized arguments: --x"), Reason.CONFIGURATION),
    (raised("ValueError: bad shard"), Reason.PROGRAM),
    (raised("__main__.Odd"), Reason.PROGRAM),
    (("step 1", "Done"), Reason.PROGRAM),
    ((), Reason.PROGRAM),
]


@pytest.mark.parametrize(
    ("lines", "reason"), FAILED, ids=[lines[-1][:40] if lines else "" for lines, _ in FAILED]
)
def test_the_last_exception_of_a_rank_is_the_reason(lines, reason):
    assert reason_of(End(ExitKind.RANK_FAILED, lines=lines)) is reason
    marked = [f"[rank3]: {line}" for line in lines]
    assert reason_of(End(ExitKind.RANK_FAILED, lines=marked)) is reason


def test_what_an_exception_was_raised_from_counts_where_it_says_no_more_itself():
    from_memory = raised(
        "MemoryError", "", "The above exception was the direct cause of the following exception:"
    )
    assert reason_in((*from_memory, *raised("RuntimeError: cannot load"))) is Reason.HOST_MEMORY


def test_an_exception_that_was_caught_earlier_does_not_count():
    assert reason_in((*raised("MemoryError"), *raised("ValueError: bad shard"))) is Reason.PROGRAM


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (End(ExitKind.RANK_KILLED, signal=signal.SIGKILL), Reason.KILLED),
        (End(ExitKind.RANK_KILLED, signal=signal.SIGKILL, oom_killed=True), Reason.HOST_MEMORY),
        (
            End(
                ExitKind.RANK_KILLED,
                signal=signal.SIGKILL,
                launcher_lines=("srun: error: node2: task 3: Out Of Memory",),
            ),
            Reason.HOST_MEMORY,
        ),
        (
            End(
                ExitKind.RANK_KILLED,
                signal=signal.SIGKILL,
                launcher_lines=("slurmstepd: error: Detected 1 oom_kill event in StepId=5.0.",),
            ),
            Reason.HOST_MEMORY,
        ),
        # The kernel's killer ends by SIGKILL alone.
        (End(ExitKind.RANK_KILLED, signal=signal.SIGTERM, oom_killed=True), Reason.KILLED),
        (End(ExitKind.RANK_KILLED, signal=signal.SIGSEGV), Reason.PROGRAM),
        (
            End(
                ExitKind.RANK_KILLED,
                signal=signal.SIGABRT,
                lines=("terminate called after throwing an instance of 'c10::DistBackendError'",),
            ),
            Reason.NETWORK,
        ),
        (End(ExitKind.RANK_KILLED, signal=signal.SIGXCPU), Reason.ENVIRONMENT),
        (
            End(
                ExitKind.RANK_FAILED,
                lines=raised("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed."),
                oom_killed=True,
            ),
            Reason.HOST_MEMORY,
        ),
        (End(ExitKind.RANK_FAILED, lines=raised("ConnectionResetError: x"), oom_killed=True), Reason.NETWORK),
        (End(ExitKind.HOST_LOST, signal=signal.SIGKILL), Reason.HOST_LOST),
        (End(ExitKind.LAUNCHER_DIED, signal=signal.SIGKILL), Reason.LAUNCHER),
        (End(ExitKind.LAUNCHER_DIED, lines=("ssh: connect to host b: No route to host",)), Reason.LAUNCHER),
        (End(ExitKind.LAUNCHER_DIED, lines=raised("ModuleNotFoundError: x")), Reason.ENVIRONMENT),
        (End(ExitKind.WATCHDOG), Reason.HUNG),
        (End(ExitKind.WORLD_MISMATCH), Reason.CONFIGURATION),
        (End(ExitKind.BEFORE_FIRST_STEP, met=False), Reason.NETWORK),
        (End(ExitKind.BEFORE_FIRST_STEP), Reason.PROGRAM),
        (End(ExitKind.TERMINATED, signal=signal.SIGTERM), Reason.STOPPED),
        (End(ExitKind.INTERRUPTED, signal=signal.SIGINT), Reason.STOPPED),
        (
            End(
                ExitKind.RANK_KILLED,
                signal=signal.SIGKILL,
                launcher_lines=(
                    "slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT x DUE TO PREEMPTION ***",
                ),
            ),
            Reason.PREEMPTION,
        ),
    ],
)
def test_an_end_has_one_reason(end, reason):
    assert reason_of(end) is reason


@pytest.mark.parametrize(
    ("cause", "code", "more", "reason"),
    [
        ("ok", 0, {}, None),
        ("exception", 1, {"tail": raised("MemoryError")}, Reason.HOST_MEMORY),
        ("signal", 137, {"signal": 9, "oom_killed": True}, Reason.HOST_MEMORY),
        ("signal", 139, {"signal": 11}, Reason.PROGRAM),
        ("world_mismatch", 4, {}, Reason.CONFIGURATION),
        ("stopped", 143, {"signal": 15, "tail": raised("MemoryError")}, Reason.STOPPED),
        ("parent_died", 143, {}, Reason.STOPPED),
        ("lease_lost", 143, {}, Reason.STOPPED),
    ],
)
def test_each_rank_has_a_reason_of_its_own(cause, code, more, reason):
    assert reason_of_rank(ExitRecord(1.0, 0, code, cause, **more)) is reason


def test_who_knows_a_program_reads_its_output_instead():
    end = End(ExitKind.RANK_FAILED, lines=("XID 79",))
    assert reason_of(end, lambda lines: Reason.HARDWARE if "XID 79" in lines else None) is Reason.HARDWARE


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (raised("ValueError: bad shard", "with more", "  of it"), "ValueError: bad shard"),
        (["[rank1]: Traceback (most recent call last):", "[rank1]: ValueError: x"], "ValueError: x"),
        (("error[DSF350]: the loss is nan", "  hint: x"), "error[DSF350]: the loss is nan"),
        (("step 1", "step 2"), None),
    ],
)
def test_the_words_of_an_end_are_one_line(lines, words):
    assert last_words(lines) == words
