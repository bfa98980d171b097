from __future__ import annotations

import subprocess
import time

from dsforge.base.canonical import dump_line
from dsforge.base.files import append_line
from dsforge.base.processes import identify
from dsforge.rank.neighbours import Neighbours
from dsforge.records.streams import ExitRecord, WorldReport


def test_a_rank_that_vanishes_is_told_once_and_one_that_says_goodbye_never(tmp_path):
    stream = tmp_path / "ranks-1.jsonl"
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    try:
        for rank, sleeper in enumerate(sleepers):
            who = identify(sleeper.pid)
            assert who is not None
            report = WorldReport(
                *(100.0, rank, rank, 2, "host", 1),
                *(who.pid, who.start, who.pid, who.start),
            )
            append_line(stream, dump_line(report.as_dict()))
        neighbours = Neighbours(stream)
        before = time.time()
        assert neighbours.newly_gone() == {}
        assert neighbours.newly_gone() == {}
        append_line(stream, dump_line(ExitRecord(time=101.0, rank=1, code=0, cause="ok").as_dict()))
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
        gone = neighbours.newly_gone()
        assert gone.keys() == {0}
        assert before <= gone[0] <= time.time()
        assert neighbours.newly_gone() == {}
    finally:
        for sleeper in sleepers:
            sleeper.kill()
