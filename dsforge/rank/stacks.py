"""Looks twice where a node's trainers are, all at the same time, and writes it down. None is paused."""

from __future__ import annotations

import contextlib
import linecache
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, Queue

from dsforge.base import processes, stack_dump
from dsforge.base.canonical import dump_line
from dsforge.base.files import append_line
from dsforge.base.processes import ProcessId
from dsforge.rank.frames import Thread, from_faulthandler, from_py_spy
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import StackSample

GAP_SECONDS = 2.0
"""Between the two looks."""
LOOK_SECONDS = 5.0
"""For all looks of one time."""
SPY_SECONDS = 3.0
"""For py-spy, which reads a process's memory; where it may not, or hangs, something else is asked."""
_MOST_FRAMES = 40
_ANSWERS = ("R", "S")
"""States in which a process takes signals: those in D or T would find them later."""


def answer_later(attempt: AttemptDir, node: int, trainers: Mapping[int, ProcessId], request: int) -> None:
    """Have `answer` done by a thread of its own, which ends with this process."""
    words = (attempt, node, dict(trainers), request)
    threading.Thread(target=answer, args=words, name="stacks", daemon=True).start()


def answer(attempt: AttemptDir, node: int, trainers: Mapping[int, ProcessId], request: int) -> None:
    """Look twice at the trainers of a node by rank; the samples go to its stream, the stacks to its text.

    Takes GAP_SECONDS and twice LOOK_SECONDS at most. A full disk loses what it would have said.
    """
    for is_last in (False, True):
        if is_last:
            time.sleep(GAP_SECONDS)
        for sample, threads in _looks(node, trainers, request, is_last=is_last):
            with contextlib.suppress(OSError):
                append_line(attempt.stacks(node), _told(sample, threads))
                append_line(attempt.rank_stream(node), dump_line(sample.as_dict()))


def _looks(
    node: int, trainers: Mapping[int, ProcessId], request: int, *, is_last: bool
) -> Iterator[tuple[StackSample, list[Thread]]]:
    """Yield what is seen of each trainer; nobody waits for a look that hangs, as on a dead disk."""
    answers: Queue[tuple[StackSample, list[Thread]] | None] = Queue()

    def look(rank: int, trainer: ProcessId) -> None:
        answers.put(_look(trainer, node, rank, request, is_last=is_last))

    for words in trainers.items():
        threading.Thread(target=look, args=words, name="stack", daemon=True).start()
    deadline = time.monotonic() + LOOK_SECONDS
    for _ in trainers:
        try:
            found = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            return
        if found is not None:
            yield found


def _look(
    trainer: ProcessId, node: int, rank: int, request: int, *, is_last: bool
) -> tuple[StackSample, list[Thread]] | None:
    """Return where a trainer is, and all its threads; None where it has ended."""
    status = processes.status_of(trainer)
    if status is None:
        return None
    tool, threads = _threads(trainer, status.state)
    frames = next((thread.frames for thread in threads if thread.is_main), ())[:_MOST_FRAMES]
    sample = StackSample(
        time=time.time(),
        node=node,
        rank=rank,
        request=request,
        is_last=is_last,
        tool=tool,
        state=status.state,
        channel=status.channel,
        cpu_seconds=processes.cpu_seconds_of_session(trainer.pid),
        frames=tuple(replace(one, code=linecache.getline(one.file, one.line).strip()) for one in frames),
    )
    return sample, threads


def _threads(trainer: ProcessId, state: str) -> tuple[str, list[Thread]]:
    """Return the threads of a process and what told of them: py-spy, else itself, else nothing can."""
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        return "py-spy", from_py_spy(_spied(trainer.pid), trainer.pid)
    if state in _ANSWERS and (text := stack_dump.ask(trainer)) is not None:
        return "faulthandler", from_faulthandler(text)
    return "/proc", []


def _spied(pid: int) -> str:
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    if program is None:
        raise FileNotFoundError("py-spy")
    # It never stops the process: what it reads may then be torn, which two looks show.
    words = (program, "dump", "--nonblocking", "--full-filenames", "--json", "--pid", str(pid))
    done = subprocess.run(
        words,
        env={**os.environ, "RUST_BACKTRACE": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SPY_SECONDS,
        check=True,
    )
    return done.stdout.decode("utf-8", "replace")


def _told(sample: StackSample, threads: Sequence[Thread]) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(sample.time))
    state = f"state {sample.state}, in the kernel's {sample.channel or 'nothing'}"
    head = f"== rank {sample.rank}, {when}, {state}, {sample.cpu_seconds:.2f} s of CPU time, by {sample.tool}"
    return f"{head}\n{''.join(map(_as_text, threads))}\n"


def _as_text(thread: Thread) -> str:
    calls = "".join(f"    {call}\n" for call in thread.frames)
    return f"Thread {thread.name}{' (main)' if thread.is_main else ''}\n{calls}"
