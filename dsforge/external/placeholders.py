"""Places in a script's arguments that the recipe fills: `{batch.micro}`, and paths such as `{ds_config}`.

A name in two pairs of braces, `{{epoch}}`, is text for the program: `{epoch}`. Braces around anything but a
name, as in JSON, stay as they are written.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dsforge.external.mapping import Word
from dsforge.external.options import Fault
from dsforge.external.values import RECIPE_KEYS, RESOLVED

_IDENTIFIER = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_PLACE = re.compile(
    rf"(?<!\$)(?:\{{\{{(?P<text>{_IDENTIFIER})\}}\}}|\{{(?P<name>{_IDENTIFIER})(?P<form>[:!][^{{}}]*)?\}})"
)
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
        path = _PLACE.fullmatch(argument)
        if path is not None and path["name"] in PATHS and path["form"] is None:
            yield PATHS[path["name"]]
        else:
            yield Word(_PLACE.sub(lambda match: _filled(match, values), argument))


def used_keys(arguments: Sequence[str]) -> set[str]:
    """Return the recipe's keys, and names of paths, that the arguments ask for."""
    matches = (match for argument in arguments for match in _PLACE.finditer(argument))
    return {match["name"] for match in matches if match["name"] and match["form"] is None}


def faults(arguments: Sequence[str], values: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield each place that nothing fills."""
    for at, argument in enumerate(arguments):
        for match in _PLACE.finditer(argument):
            found = _fault(match, argument, values)
            if found is not None:
                yield Fault(at, *found)


def _fault(match: re.Match[str], argument: str, values: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what is wrong with a place, and the hint."""
    name = match["name"] or match["text"]
    key = _NAMES.get(name, name)
    is_known = name in PATHS or key in values
    if match["text"] or match["form"]:
        is_fault = is_known
        problem = (f"`{match[0]}` is no form of the place `{{{name}}}`", f"write `{{{name}}}`")
    elif not is_known:
        is_fault, problem = True, (f"`{match[0]}` names nothing that a recipe says", _meant(name, values))
    elif name in PATHS:
        is_fault = argument != match[0]
        problem = (
            f"`{match[0]}` is a path, and stands inside `{argument}`",
            "give the path an argument of its own",
        )
    else:
        is_fault = key not in RESOLVED and not _text(values[key])
        problem = (f"`{match[0]}` has no value in this recipe", f"set `{name}`, or write the argument out")
    return problem if is_fault else None


def _meant(name: str, values: Mapping[str, Any]) -> str:
    """Return the hint for a name that is no place."""
    known = [*PATHS, *(RECIPE_KEYS.get(key, key) for key in values)]
    word = name.lower()
    near = [one for one in known if one == word or one.endswith(f".{word}")]
    near += difflib.get_close_matches(word, known, n=1)
    return f"did you mean `{{{near[0]}}}`?" if near else f"write `{{{{{name}}}}}` for the text `{{{name}}}`"


def _filled(match: re.Match[str], values: Mapping[str, Any]) -> str:
    if match["text"]:
        return f"{{{match['text']}}}"
    name = _NAMES.get(match["name"], match["name"])
    return _text(values[name]) if name in values and match["form"] is None else match[0]


def _text(value: Any) -> str:
    """Return a value as an argument, a list with commas; empty for what has no value."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ",".join(_text(one) for one in value)
    return value if isinstance(value, str) else repr(value)
