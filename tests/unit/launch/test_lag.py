from __future__ import annotations

import pytest

from dsforge.launch.lag import judge
from dsforge.records.stacks import Frame
from dsforge.records.streams import StackSample

HOSTS = {0: "a", 1: "a", 2: "b", 3: "b"}
SITE = "/venv/lib/python3.11/site-packages"


def torch_call(name: str) -> Frame:
    return Frame(name, f"{SITE}/torch/distributed/distributed_c10d.py", 2810)


STEP = Frame("Engine.step", "/src/dsforge/train/engine.py", 114, "loss = self._module_step(batches)")
REDUCE = (
    torch_call("all_reduce"),
    Frame("_exception_logger.<locals>.wrapper", f"{SITE}/torch/distributed/c10d_logger.py", 83),
    Frame("all_reduce", f"{SITE}/deepspeed/comm/comm.py", 710),
    STEP,
)
GATHER = (torch_call("all_gather"), STEP)
READ = (Frame("read", "/src/dsforge/train/reader.py", 88, "return os.pread(self._handle, size, at)"), STEP)
WAITS = "all_reduce of Engine.step (dsforge/train/engine.py:114)"


def looks(rank: int, frames, *, then=None, state="S", channel="", cpu=(4.0, 4.0), tool="py-spy"):
    """Return two looks at a rank, two seconds apart."""
    return [
        StackSample(100.0 + 2 * last, rank // 2, rank, 1, bool(last), tool, state, channel, cpu[last], seen)
        for last, seen in enumerate((frames, frames if then is None else then))
    ]


def judged(*samples, on_gpus: bool = False):
    return judge([one for pair in samples for one in pair], HOSTS, on_gpus=on_gpus)


def waiting(*ranks: int):
    return [looks(rank, REDUCE, channel="futex_do_wait") for rank in ranks]


def test_a_stopped_rank_is_named_with_what_the_others_wait_in():
    verdict = judged(*waiting(0, 1, 3), looks(2, REDUCE, state="T", channel="do_signal_stop"))
    assert (verdict.is_slow, verdict.rank) == (False, 2)
    assert verdict.words == (
        f"rank 2 on host b is stopped by a signal (SIGSTOP) in {REDUCE[0]} of {STEP}",
        f"ranks 0-1, 3 wait in {WAITS}",
    )


def test_a_rank_that_sleeps_outside_of_any_wait_hangs():
    verdict = judged(*waiting(0, 2, 3), looks(1, READ, channel="hrtimer_nanosleep"))
    assert (verdict.is_slow, verdict.rank) == (False, 1)
    assert verdict.words[0] == (
        "rank 1 on host a hangs in read (dsforge/train/reader.py:88) (data), "
        "asleep in the kernel's hrtimer_nanosleep"
    )


@pytest.mark.parametrize(
    "busy",
    [
        looks(1, READ, cpu=(4.0, 5.0)),
        looks(1, READ, then=(Frame("seek", "/src/dsforge/train/reader.py", 70), *READ)),
        # Nothing tells its calls, but it computes.
        looks(1, (), cpu=(4.0, 5.0), tool="/proc"),
    ],
    ids=["computes", "moves", "computes unseen"],
)
def test_a_rank_that_still_works_is_slow(busy):
    verdict = judged(*waiting(0, 2, 3), busy)
    assert (verdict.is_slow, verdict.rank) == (True, 1)
    assert "rank 1 on host a still works" in verdict.words[0]


def test_a_look_that_showed_nothing_is_no_movement():
    verdict = judged(*waiting(0, 2, 3), looks(1, (), then=READ))
    assert (verdict.is_slow, verdict.rank) == (False, 1)


def test_who_waits_may_use_the_processor():
    spinning = [looks(rank, REDUCE, cpu=(4.0, 6.0)) for rank in (0, 1, 3)]
    verdict = judged(*spinning, looks(2, READ))
    assert (verdict.is_slow, verdict.rank) == (False, 2)


def test_a_rank_that_its_kernel_keeps_is_named_with_the_kernels_word():
    verdict = judged(*waiting(0, 1, 2), looks(3, READ, state="D", channel="rpc_wait_bit_killable"))
    assert verdict.rank == 3
    assert "waits for a disk or a device in the kernel's rpc_wait_bit_killable" in verdict.words[0]


def test_one_stopped_rank_comes_before_one_that_only_works():
    verdict = judged(*waiting(0), looks(1, READ, cpu=(1.0, 3.0)), looks(2, READ), looks(3, READ, state="T"))
    assert [word.split(" on ")[0] for word in verdict.words[:3]] == ["rank 3", "rank 2", "rank 1"]
    assert verdict.rank == 3


def test_all_in_one_call_is_the_network_and_no_ranks_fault():
    verdict = judged(*waiting(0, 1, 2, 3))
    assert (verdict.is_slow, verdict.rank) == (False, None)
    assert verdict.words == (f"all ranks wait in {WAITS}: the network or a device does not finish it",)


def test_a_rank_in_another_call_than_the_rest_is_told():
    verdict = judged(*waiting(0, 1, 3), looks(2, GATHER))
    assert verdict.rank == 2
    assert verdict.words == (
        "all ranks wait, and not in the same call",
        f"ranks 0-1, 3 in {WAITS}",
        "rank 2 in all_gather of Engine.step (dsforge/train/engine.py:114)",
    )


def test_a_handle_that_is_waited_for_is_a_wait():
    handle = (Frame("agreed", "/src/dsforge/train/stop.py", 92, "self._question.wait()"), STEP)
    verdict = judged(*[looks(rank, handle) for rank in (0, 1, 3)], looks(2, READ))
    assert verdict.rank == 2
    assert verdict.words[1] == "ranks 0-1, 3 wait in agreed (dsforge/train/stop.py:92)"


def test_on_gpus_a_value_of_the_device_is_waited_for_too():
    item = (Frame("norm", f"{SITE}/deepspeed/runtime/utils.py", 9, "total_norm = total.item()"), STEP)
    samples = [*[looks(rank, item, cpu=(1.0, 3.0)) for rank in (0, 1, 3)], looks(2, READ)]
    assert judged(*samples, on_gpus=True).rank == 2
    assert judged(*samples, on_gpus=True).is_slow is False
    assert judged(*samples).is_slow is True


def test_who_cannot_be_looked_into_is_said_and_not_blamed():
    unseen = [looks(rank, (), tool="/proc") for rank in (0, 1, 2)]
    verdict = judged(*unseen, looks(3, (), state="T", tool="/proc"))
    assert verdict.rank == 3
    assert verdict.words == (
        "rank 3 on host b is stopped by a signal (SIGSTOP)",
        "of ranks 0-2 nothing can be told; py-spy would, where it is installed and allowed",
    )
    # What spins for a GPU may well wait.
    spins = [looks(rank, (), cpu=(1.0, 3.0), tool="/proc") for rank in range(4)]
    assert judged(*spins, on_gpus=True).rank is None


def test_a_host_that_does_not_answer_is_named():
    verdict = judged(*waiting(0, 1))
    assert verdict.rank == 2
    assert verdict.words[-1] == "ranks 2-3 did not answer"


def test_of_many_that_lag_the_first_are_told():
    hosts = {rank: f"n{rank // 8}" for rank in range(16_384)}
    samples = [one for rank in range(0, 16_384, 2) for one in looks(rank, READ)]
    samples += [one for rank in range(1, 16_384, 2) for one in looks(rank, REDUCE)]
    verdict = judge(samples, hosts, on_gpus=False)
    assert verdict.words[4].endswith("and 8180 more wait for nobody either")
    assert sum(map(len, verdict.words)) < 1200


def test_no_rank_is_no_fault():
    assert judge([], {}, on_gpus=False).rank is None
