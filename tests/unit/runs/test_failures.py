from __future__ import annotations

from dsforge.records.streams import ExitRecord
from dsforge.runs.failures import Failure, fold

HEAD = "Traceback (most recent call last):"


def ended(rank: int, *tail: str, cause: str = "exception") -> ExitRecord:
    return ExitRecord(100.0 + rank, rank, 1, cause, tail=tail)


def test_ranks_that_fail_alike_are_told_once():
    hosts = {rank: f"node-{rank // 8}" for rank in range(16)}
    records = [
        ended(rank, f"step {rank}", HEAD, f"[rank{rank}]: Error: peer 10.0.0.{rank}:4{rank} at 0x{rank:x}")
        for rank in range(16)
    ]
    records.insert(3, ended(20, HEAD, "ValueError: bad shard"))
    records.append(ended(21, "told to stop", cause="stopped"))
    assert fold(records, hosts) == (
        Failure(0, "node-0", (HEAD, "[rank0]: Error: peer 10.0.0.0:40 at 0x0"), tuple(range(1, 16))),
        Failure(20, None, (HEAD, "ValueError: bad shard")),
    )


def test_another_line_of_the_program_is_another_failure():
    found = fold([ended(0, '  File "a.py", line 88'), ended(1, '  File "a.py", line 89')], {})
    assert [(one.rank, one.same) for one in found] == [(0, ()), (1, ())]


def test_the_cause_comes_first_also_where_another_record_is_earlier():
    first = Failure(2, "b", ("killed",))
    found = fold([ended(1, "reset by peer"), ended(2, "later words"), ended(3, "killed")], {}, first)
    assert [(one.rank, one.same) for one in found] == [(2, (3,)), (1, ())]
