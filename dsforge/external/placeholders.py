"""Places in a script's arguments that the recipe fills: `{batch.micro}`, and paths such as `{ds_config}`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dsforge.external.mapping import Word
from dsforge.external.options import Fault
from dsforge.external.values import RECIPE_KEYS

_NAME = re.compile(r"\{([a-z_]+(?:\.[a-z_]+)+|[a-z_]+)\}")
PATHS = {
    "ds_config": Word("ds_config.json", "bundle"),
    "checkpoints": Word(".", "checkpoints"),
    "corpus": Word("", "corpus"),
    "root": Word(".", "root"),
    "attempt": Word(".", "attempt"),
}
"""Places of the run, known where a rank runs: such a name is a whole argument."""
_NAMES = {key: name for name, key in RECIPE_KEYS.items()}


def expand(arguments: Sequence[str], values: Mapping[str, Any]) -> Iterator[Word]:
    """Yield the arguments with every place filled; what is no name of a recipe stays as it is written."""
    for argument in arguments:
        path = _NAME.fullmatch(argument)
        if path is not None and path[1] in PATHS:
            yield PATHS[path[1]]
        else:
            yield Word(_NAME.sub(lambda match: _filled(match, values), argument))


def used_keys(arguments: Sequence[str]) -> set[str]:
    """Return the recipe's keys, and names of paths, that the arguments ask for."""
    return {name for argument in arguments for name in _NAME.findall(argument)}


def faults(arguments: Sequence[str], values: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield each place that nothing fills."""
    for at, argument in enumerate(arguments):
        for name in _NAME.findall(argument):
            if name in PATHS and argument != f"{{{name}}}":
                hint = "give the path an argument of its own"
                yield Fault(at, f"`{{{name}}}` is a path, and stands inside `{argument}`", hint)
            elif "." in name and _NAMES.get(name, name) not in values:
                near = difflib.get_close_matches(name, values, n=1)
                hint = f"did you mean `{{{near[0]}}}`?" if near else "a key of the recipe"
                yield Fault(at, f"`{{{name}}}` names nothing that a recipe says", hint)


def _filled(match: re.Match[str], values: Mapping[str, Any]) -> str:
    name = _NAMES.get(match[1], match[1])
    if name not in values:
        return match[0]
    value = values[name]
    return value if isinstance(value, str) else repr(value)
