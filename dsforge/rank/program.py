"""The command of an external program, and the variables that it needs besides the rank's."""

from __future__ import annotations

import base64
import copy
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsforge.records.program import ProgramFile, resolve

_SITE = Path(__file__).with_name("site")
STUBS = "DSFORGE_STUBS"
"""Names of imports, with commas between, that `site/sitecustomize.py` serves where they are missing."""
STAND_INS = "DSFORGE_STAND_INS"
"""What names of PyTorch do where it has no CUDA, as JSON, for `site/cpu_device.py`."""


def command(program: ProgramFile, environ: Mapping[str, str]) -> list[str]:
    """Return the argument list that starts the program; ValueError when a path's base is not set.

    It never passes a shell, nor any launcher.
    """
    folder = resolve(program.folder, "root", environ)
    arguments = [
        resolve(text, program.bases.get(str(index)), environ) for index, text in enumerate(program.arguments)
    ]
    if program.configuration is not None:
        assert program.configuration_option is not None, "rendered with it"
        text = json.dumps(_configuration(program, environ))
        encoded = base64.urlsafe_b64encode(text.encode()).decode()
        arguments += [program.configuration_option, encoded]
    return [sys.executable, "-u", str(Path(folder) / program.entry), *arguments]


def variables(program: ProgramFile, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what is set for the program: where it finds modules and this Python, stand-ins, ranks here."""
    paths = [str(_SITE), resolve(program.folder, "root", environ), environ.get("PYTHONPATH")]
    wanted: dict[str, str] = {}
    if program.stubs or program.stand_ins:
        wanted |= {STUBS: ",".join(program.stubs), STAND_INS: json.dumps(program.stand_ins)}
    # DeepSpeed reads the one, PyTorch the other; launchers set one of them.
    if here := environ.get("LOCAL_SIZE") or environ.get("LOCAL_WORLD_SIZE"):
        wanted |= {"LOCAL_SIZE": here, "LOCAL_WORLD_SIZE": here}
    # A program that compiles a part of itself asks `python3` of the path for the headers.
    commands = (str(Path(sys.executable).parent), environ.get("PATH", os.defpath))
    wanted["PATH"] = os.pathsep.join(commands)
    return {**wanted, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _configuration(program: ProgramFile, environ: Mapping[str, str]) -> dict[str, Any]:
    tree = copy.deepcopy(program.configuration)
    assert tree is not None
    for key, base in program.configuration_bases.items():
        *sections, last = key.split(".")
        node = tree
        for section in sections:
            node = node[section]
        value = node[last]
        if isinstance(value, list):
            node[last] = [resolve(text, base, environ) for text in value]
        else:
            node[last] = resolve(value, base, environ)
    return tree
