"""What bash itself refuses of a script's text: it parses the text (`bash -n`) and runs nothing of it."""

from __future__ import annotations

import re
import shutil
import subprocess

from dsforge.base.errors import Finding, Place, Severity

_SECONDS = 20.0
_SHELLS = re.compile(r"#!.*\b(ba)?sh\b")
_FAULT = re.compile(r"line (?P<line>[0-9]+): (?P<reason>.*)")


def refused_by_bash(text: str, file: str) -> Finding | None:
    """Return the first fault that bash finds; None without one, without bash, for another shell's script."""
    bash = shutil.which("bash")
    if bash is None or (text.startswith("#!") and not _SHELLS.match(text)):
        return None
    try:
        # Without variables of ours no file is read before the script (BASH_ENV).
        done = subprocess.run(
            (bash, "-O", "extglob", "-n", "-s"),
            input=text,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env={"LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    fault = _FAULT.search(done.stderr)
    if done.returncode == 0 or fault is None:
        return None
    place = Place(file, min(int(fault["line"]), text.count("\n") + 1), 1)
    message = f"bash refuses the script: {fault['reason']}"
    return Finding("DSF687", Severity.ERROR, message, None, place, "close or remove what it names")
