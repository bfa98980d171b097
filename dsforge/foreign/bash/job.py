"""`#SBATCH` lines as what a recipe says of a Slurm job."""

from __future__ import annotations

import re

from dsforge.foreign.bash.script import Script
from dsforge.foreign.bash.text import Text
from dsforge.foreign.imports import Carried, Import, Left

_KEYS = {
    "--partition": "partition", "-p": "partition", "--account": "account", "-A": "account",
    "--qos": "qos", "-q": "qos", "--constraint": "constraint", "-C": "constraint",
}  # fmt: skip
_COUNTED = (
    *("--nodes", "-N", "--ntasks-per-node", "--ntasks", "-n", "--gpus-per-node", "--gres", "--gpus", "-G"),
    "--gpus-per-task",
)
"""What `cluster` says."""
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<parts>\d+(?::\d+){0,2})")


def carry_job(script: Script) -> Import:
    """Return what a recipe carries of a script's Slurm options, and what not."""
    out = Import()
    for line in script.directives:
        words = list(line.quoted(False).words())[1:]
        while words:
            name, equals, value = str(words[0]).partition("=")
            first = words.pop(0)
            if not equals and words and not str(words[0]).startswith("-"):
                value = str(words.pop(0))
            _carry(out, script, first, name, value)
    if script.directives:
        place = script.lines.place(script.directives[0].at)
        out.carried.append(Carried("launch.launcher", "slurm", "the lines for sbatch", place))
    return out


def _carry(out: Import, script: Script, at: Text, name: str, value: str) -> None:
    place = script.lines.place(at.at)
    minutes = _minutes(value) if name in ("--time", "-t") else None
    if name in _KEYS:
        out.carried.append(Carried(f"launch.slurm.{_KEYS[name]}", value, name, place))
    elif minutes is not None:
        out.carried.append(Carried("launch.slurm.time", f"{minutes}m", name, place))
    elif name == "--cpus-per-task" and value.isdecimal():
        out.left.append(Left(name, value, "the script starts one task a host, dsforge one a rank", place))
    elif name not in _COUNTED:
        out.left.append(Left(name, value, "an option of sbatch: see launch.slurm", place))


def _minutes(text: str) -> int | None:
    """Return a time limit in whole minutes, rounded up (sbatch(1), --time: [days-]hours:minutes:seconds)."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    parts = [int(part) for part in match["parts"].split(":")]
    if match["days"] is not None:
        hours, minutes, seconds = [*parts, 0, 0][:3]
        hours += 24 * int(match["days"])
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours = 0
        minutes, seconds = [*parts, 0][:2]
    return hours * 60 + minutes + (1 if seconds else 0)
