"""What a run that ended early leaves to go on from, and the command that does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsforge.base import shell
from dsforge.records.checkpoint import whole_checkpoints

_RESUME = "checkpoint.resume="


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a run was started: what was typed, where its checkpoints lie, and its `checkpoint.resume`.

    `names_folder`: the recipe names the checkpoints' folder, so that the next run finds them there.
    """

    command: Sequence[str]
    folder: Path
    names_folder: bool
    resume: str


@dataclass(frozen=True, slots=True)
class WayOn:
    """The newest whole checkpoint, if there is one, and how to go on from it, in words."""

    step: int | None
    folder: Path | None
    command: str | None
    words: str

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping of what a program would go on by."""
        folder = str(self.folder) if self.folder else None
        return {"step": self.step, "folder": folder, "command": self.command}

    def after(self, message: str) -> str:
        """Return why a run stopped with what is left of it; the command on a line of its own."""
        how = f"\ngo on with: {self.command}" if self.command else ""
        return f"{message}; {self.words}{how}"


def find_way_on(beginning: Beginning, last_step: int | None) -> WayOn:
    """Look for the checkpoint that a run left which made steps up to `last_step`, None for none."""
    try:
        whole = whole_checkpoints(beginning.folder)
    except OSError:
        whole = []  # what cannot be read now is no promise
    command = resume_command(beginning, whole[-1][1] if whole else None)
    if not whole:
        words = (
            "no step was made" if last_step is None else f"no checkpoint of its {last_step} steps was made"
        )
        return WayOn(None, None, command, words)
    step, newest = whole[-1]
    words = f"the checkpoint of step {step} is {newest}"
    if last_step is not None and step < last_step:
        words = f"no checkpoint of step {last_step} was made, the newest is that of step {step}: {newest}"
    return WayOn(step, newest, command, words)


def resume_command(beginning: Beginning, folder: Path | None) -> str | None:
    """Return the words that go on from a checkpoint, or start again without one; None for no `launch`."""
    if "launch" not in beginning.command:
        return None
    words = list(beginning.command)
    if folder is not None and not beginning.names_folder:
        change = f"{_RESUME}{folder}"  # another run has another folder
    elif folder is not None and beginning.resume != "auto":
        change = f"{_RESUME}auto"
    else:
        return shell.join(words)
    return shell.join([*(word for word in words if not word.startswith(_RESUME)), change])
