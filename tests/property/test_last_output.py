"""Whatever a rank prints, and whatever a tool says of it, is read."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from dsforge.base.exits import ExitKind
from dsforge.launch.lag import judge
from dsforge.launch.reasons import End, last_words, reason_of
from dsforge.rank.frames import from_faulthandler, from_py_spy
from dsforge.records.reasons import Reason
from dsforge.records.stacks import Frame
from dsforge.records.streams import StackSample
from dsforge.runs.failures import fold

LINES = st.lists(
    st.one_of(
        st.text(max_size=40),
        st.sampled_from(
            [
                "Traceback (most recent call last):",
                '  File "a.py", line 3, in f',
                "During handling of the above exception, another exception occurred:",
                "[rank1]: RuntimeError: CUDA out of memory",
                "error[DSF350]: the loss is nan",
                "Thread 0x7f (most recent call first):",
                '  File "a.py", line 3 in f',
            ]
        ),
    ),
    max_size=40,
)
FRAMES = st.lists(st.builds(Frame, st.text(), st.text(), st.integers(0), st.text()), max_size=5)


@given(LINES, st.sampled_from(ExitKind), st.none() | st.integers(1, 64), st.booleans())
def test_every_end_has_a_reason(lines, kind, number, oom_killed):
    end = End(kind, signal=number, lines=lines, launcher_lines=lines, oom_killed=oom_killed)
    assert isinstance(reason_of(end), Reason)
    words = last_words(lines)
    assert words is None or any(words in line for line in lines)


@given(LINES, st.text())
def test_no_text_of_a_tool_breaks_the_reader(lines, text):
    for thread in from_faulthandler("\n".join(lines)):
        assert all(frame.line >= 0 for frame in thread.frames)
    with contextlib.suppress(ValueError):
        from_py_spy(text, 7)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.booleans(), st.sampled_from("RSDTtZ"), st.floats(0, 1e6), FRAMES),
        max_size=12,
    ),
    st.booleans(),
)
def test_a_verdict_names_every_rank_and_blames_one_of_them(looks, on_gpus):
    samples = [
        StackSample(100.0 + is_last, 0, rank, 1, is_last, "py-spy", state, "", cpu, tuple(frames))
        for rank, is_last, state, cpu, frames in looks
    ]
    hosts = dict.fromkeys(range(4), "a")
    verdict = judge(samples, hosts, on_gpus=on_gpus)
    assert verdict.rank in (*hosts, None)
    assert verdict.words
    assert ("did not answer" in "\n".join(verdict.words)) == (len({one.rank for one in samples}) < 4)


def test_nothing_is_no_failure():
    assert fold([], {}) == ()
