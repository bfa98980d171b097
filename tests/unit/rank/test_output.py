from __future__ import annotations

import os

from dsforge.rank.output import TAIL_LINES, OutputPump


def pumped(tmp_path, data: bytes, *, rank: int = 3, log: str = "node-0.log"):
    read_end, write_end = os.pipe()
    pump = OutputPump(read_end, tmp_path / log, rank, echo=False)
    pump.start()
    os.write(write_end, data)
    os.close(write_end)
    pump.join(30)
    return pump


def test_every_line_is_marked_with_its_rank(tmp_path):
    pumped(tmp_path, b"one\ntwo \xff\nlast without newline")
    lines = (tmp_path / "node-0.log").read_text().splitlines()
    assert lines == [
        "[rank 3] one",
        "[rank 3] two \N{REPLACEMENT CHARACTER}",
        "[rank 3] last without newline",
    ]


def test_of_a_progress_bar_the_last_state_stays(tmp_path):
    pumped(tmp_path, b"10%\r50%\r100%\nnext\r\n")
    assert (tmp_path / "node-0.log").read_text() == "[rank 3] 100%\n[rank 3] next\n"


def test_the_tail_is_bounded(tmp_path):
    pump = pumped(tmp_path, b"".join(b"line %d\n" % i for i in range(100)))
    assert list(pump.tail) == [f"line {i}" for i in range(100 - TAIL_LINES, 100)]
    assert pump.failure_time is None


def test_a_traceback_is_timed_even_behind_a_prefix(tmp_path):
    pump = pumped(tmp_path, b"[rank3]: Traceback (most recent call last):\n[rank3]: ValueError\n")
    assert pump.failure_time is not None


def test_what_the_trainer_refuses_is_timed_before_its_process_ends(tmp_path):
    pump = pumped(tmp_path, b"error[DSF809]: micro-batch 1 holds the samples of another\n")
    assert pump.failure_time is not None


def test_a_log_that_cannot_be_written_does_not_stop_the_reading(tmp_path):
    pump = pumped(tmp_path, b"words\n" * 20_000, log="missing/node-0.log")
    assert pump.tail[-1] == "words"
