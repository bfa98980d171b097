"""Changes from the environment: `DSFORGE__BATCH__MICRO=2` is `batch.micro=2`."""

from __future__ import annotations

from collections.abc import Mapping

from dsforge.base.errors import DsforgeError, Place
from dsforge.recipe.document import Document, KeyPath, parse_value
from dsforge.recipe.layers import put
from dsforge.recipe.origins import Layer, Origin
from dsforge.recipe.variables import is_env_value
from dsforge.recipe.vocabulary import is_free_mapping, is_key, nearest

PREFIX = "DSFORGE__"
"""Two underscores: `DSFORGE_RUNS` and its like are no changes to a recipe."""
_FILE_ONLY = ("version", "extends", "profiles")


def change_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the names of variables that change a recipe, sections before their keys."""
    return sorted(name for name in environ if name.startswith(PREFIX))


def apply_environment(document: Document, environ: Mapping[str, str]) -> None:
    """Set every value that the environment names; DsforgeError DSF023 for a key that does not exist."""
    for name in change_variables(environ):
        place = Place(file=f"environment variable `{name}`")
        path = _path(name)
        if path[0] in _FILE_ONLY:
            raise DsforgeError("DSF023", f"`{path[0]}` stands in the file alone", place, f"unset {name}")
        if not is_key(path):
            dotted = ".".join(str(part) for part in path)
            near = _nearest(path)
            hint = f"did you mean `{_variable(near)}`?" if near else "`dsforge schema` lists the legal keys"
            raise DsforgeError("DSF023", f"unknown key `{dotted}`", place, hint)
        value = environ[name] if is_env_value(path) else parse_value(environ[name], str(place), path)
        put(document, path, value, place, Origin(Layer.ENVIRONMENT, name))


def _path(name: str) -> KeyPath:
    parts = name.removeprefix(PREFIX).split("__")
    for depth in range(1, len(parts)):
        path = tuple(part.lower() for part in parts[:depth])
        if is_free_mapping(path):  # its keys are the user's own and keep their spelling
            return (*path, "__".join(parts[depth:]))
    return tuple(part.lower() for part in parts)


def _nearest(path: KeyPath) -> str | None:
    wrong = next(n for n in range(1, len(path) + 1) if not is_key(path[:n]))
    near = nearest(path[:wrong])
    whole = (*near.split("."), *path[wrong:]) if near else ()
    return ".".join(str(part) for part in whole) if whole and is_key(whole) else near


def _variable(dotted: str) -> str:
    return PREFIX + dotted.replace(".", "__").upper()
