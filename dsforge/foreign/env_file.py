"""A `.deepspeed_env` as deepspeed's launcher reads it: no shell, no comments, each line as it stands."""

from __future__ import annotations

import re

from dsforge.base.errors import Finding, Place, Severity
from dsforge.base.text import SECRET_NAME, without_secrets

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED = re.compile(r"[^\w@%+=:,./-]")
"""The launcher's own pattern: a value that holds such a character gets double quotes, whoever reads it."""


def check_env_file(text: str, file: str) -> list[Finding]:
    """Return what each line would become on the ranks where that is not what it seems to say."""
    found: list[Finding] = []
    first: dict[str, int] = {}
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    for number, line in enumerate(lines, start=1):
        place = Place(file, number, 1)
        name, equals, value = line.partition("=")
        if "\r" in line.rstrip("\r"):
            message = "a carriage return: the launcher reads two lines here, and crashes on the second"
            found.append(_error("DSF680", message, place, "values have no line ends: remove it"))
        elif not line.strip():
            message = "a blank line: the launcher crashes on it (it expects NAME=VALUE)"
            found.append(_error("DSF680", message, place, "remove the line"))
        elif not equals:
            message = f"`{without_secrets(line[:60])}` has no `=`: the launcher crashes on it"
            found.append(_error("DSF680", message, place, "write NAME=VALUE, or remove the line"))
        else:
            name = name.strip()
            found += _line(name, value.strip(), place)
            if name in first:
                message = f"`{name[:60]}` is set twice, first in line {first[name]}: the last one counts"
                found.append(_warning("DSF684", message, place, "keep one"))
            first.setdefault(name, number)
    return found


def _error(code: str, message: str, place: Place, hint: str) -> Finding:
    return Finding(code, Severity.ERROR, message, None, place, hint)


def _line(name: str, value: str, place: Place) -> list[Finding]:
    found: list[Finding] = []
    if name.startswith("#"):
        message = f"a comment is no comment here: the launcher exports a variable named `{name[:60]}`"
        return [_error("DSF681", message, place, "remove the line")]
    if name.startswith("export "):
        bare = name.removeprefix("export ").strip()
        message = f"`export` becomes part of the name: `{bare[:60]}` is not set by this line"
        return [_error("DSF681", message, place, f"write `{bare[:60]}=...`")]
    if not _NAME.fullmatch(name):
        return [_error("DSF681", f"`{name[:60]}` is no name of a variable", place, "letters, digits and _")]
    if SECRET_NAME.search(name) and value:
        message = f"`{name}` looks like a secret: it lies in a file and shows in the ranks' command lines"
        found.append(_warning("DSF683", message, place, "a recipe names it in launch.env_from instead"))
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        message = f"the quotes become part of `{name}`'s value: no shell reads this file"
        found.append(_error("DSF681", message, place, f"write `{name}=` and the bare value"))
    elif odd := _QUOTED.search(value):
        message = (
            f"`{name}`'s value holds `{odd[0]}`: the launcher puts quotes around the value, which stay in it "
            "under mpirun and srun"
        )
        found.append(_warning("DSF682", message, place, "a value of letters, digits and @%+=:,./- only"))
    if "," in value:
        message = f"`{name}`'s value holds a comma: srun --export cuts the value there"
        found.append(_warning("DSF682", message, place, "under slurm set it in the job's script"))
    return found


def _warning(code: str, message: str, place: Place, hint: str) -> Finding:
    return Finding(code, Severity.WARNING, message, None, place, hint)
