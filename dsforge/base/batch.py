"""What a batch scheduler is to dsforge: jobs are submitted to it, looked up, told and cancelled."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

_SECONDS = 60.0
"""For a scheduler to answer: its own clients wait for several times as long when it is busy."""
_SUBMIT_SECONDS = 300.0
"""For it to take a job: asked for again, it might take the job twice."""
_UNSURE = re.compile(r"timed out|time-?out|zero bytes", re.IGNORECASE)
"""What its clients say when a question may have arrived and the answer did not."""
GONE = "GONE"
"""The state of a job that its scheduler no longer remembers: it forgets ended ones."""


class BatchError(Exception):
    """A program of a scheduler is not here, did not answer or refused, in its own words."""


class UnsureError(BatchError):
    """A scheduler may have done what was asked all the same. `said`: what its program wrote till then."""

    def __init__(self, words: str, said: str = "") -> None:
        super().__init__(words)
        self.said = said


@dataclass(frozen=True, slots=True)
class Job:
    """A job at one moment: its state and the reason for it in the scheduler's words, and in ours.

    `at`: `stopped` and `host_lost` are over too, by somebody's will or its time, and by a host's failure.
    """

    state: str
    reason: str
    at: Literal["waits", "runs", "changes", "over", "stopped", "host_lost"]

    @property
    def waits(self) -> bool:
        """Tell whether it waits for its nodes, the first time or again."""
        return self.at == "waits"

    @property
    def is_over(self) -> bool:
        """Tell whether nothing of it runs and nothing will."""
        return self.at in ("over", "stopped", "host_lost")


class Cancel(Protocol):
    """Cancels a job; with `waiting_only` unless it has started meanwhile, where the scheduler can do that."""

    def __call__(self, job: str, *, waiting_only: bool = False) -> None:
        """Raise BatchError where it cannot."""


@dataclass(frozen=True, slots=True)
class Scheduler:
    """One scheduler, through its own programs; each function raises BatchError.

    `launcher`: its name in a recipe. `name`: its name in words. `job_variable`: set in each process of a job.
    `kill`: the program that cancels; `listing`: the command that lists one's own jobs.
    `is_job`: tells whether a text is a job's id. `look_up`: from ids to
    what they are at; an error says nothing of them. `submit`: runs a command and returns the job's id;
    UnsureError where there may be a job all the same.
    `tell`: sends a signal, by its name, to a job's first process, not to its ranks. `requeue`: has a running
    job ended and queued again, where its owner may do that.
    """

    launcher: str
    name: str
    job_variable: str
    kill: str
    listing: str
    is_job: Callable[[str], bool]
    look_up: Callable[..., dict[str, Job]]
    submit: Callable[[Sequence[str], Mapping[str, str]], str]
    tell: Callable[[str, str], None]
    cancel: Cancel
    requeue: Callable[[str], None] | None = None

    def holds(self, environ: Mapping[str, str]) -> bool:
        """Tell whether a process with these variables runs in a job."""
        return bool(environ.get(self.job_variable))


def submit(command: Sequence[str], environ: Mapping[str, str], job_in: Callable[[str], str]) -> str:
    """Run what submits a job and return the job's id; BatchError, UnsureError where it may have been taken.

    `job_in`: returns the job's id in what the program says, or nothing.
    """
    try:
        said = run(*command, environ=environ, seconds=_SUBMIT_SECONDS)
    except UnsureError as error:
        if not (job := job_in(error.said)):
            raise
        return job
    if not (job := job_in(said)):
        raise UnsureError(f"{command[0]} answered {said.strip()!r}, which is no job's id")
    return job


def run(
    *words: str,
    environ: Mapping[str, str] | None = None,
    is_answer: Callable[[str], bool] | None = None,
    seconds: float = _SECONDS,
) -> str:
    """Run a program of a scheduler and return what it says; BatchError with its words where it fails.

    `is_answer`: tells of what it says on stderr that this answers the question too. It has a session of its
    own: Ctrl-C at the terminal, which ends a whole group of processes, does not cut it short.
    """
    try:
        done = subprocess.run(
            list(words),
            env=dict(environ) if environ is not None else None,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
            start_new_session=True,
        )
    except OSError as error:
        raise BatchError(f"{words[0]}: {error}") from error
    except subprocess.TimeoutExpired as error:
        told = f"{words[0]} did not answer within {seconds:g} s"
        raise UnsureError(told, (error.stdout or b"").decode("utf-8", "replace")) from error
    said, answer = (text.decode("utf-8", "replace") for text in (done.stderr, done.stdout))
    if done.returncode != 0 and not (is_answer and is_answer(said)):
        lines = [
            line.removeprefix(f"{words[0]}: ").removeprefix("error: ").strip() for line in said.splitlines()
        ]
        told = "; ".join(line for line in lines if line)
        told = f"{words[0]}: {told or f'code {done.returncode}'}"
        if done.returncode < 0 or _UNSURE.search(told):
            raise UnsureError(told, answer)
        raise BatchError(told)
    return answer
