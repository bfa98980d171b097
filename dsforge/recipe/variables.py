"""`${NAME}` and `${NAME:default}` in the text of a recipe's values; `$${` is a plain `${`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.text import SECRET_NAME
from dsforge.recipe.document import Document, KeyPath, is_argument, parse_value

"""Names of variables whose values belong in no file."""

_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)(\}?)")
_BODY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::((?!-).*))?", re.DOTALL)


def interpolate(
    document: Document,
    environ: Mapping[str, str] | None,
    *,
    under: KeyPath = (),
    skip: frozenset[str] = frozenset(),
) -> None:
    """Replace the references below a path in place. `environ` None: defaults only, nothing ambient.

    A value that is one reference and nothing else becomes what its text means in YAML (`8` a number).
    `skip` names top-level keys to leave alone. DsforgeError DSF005 for a malformed reference, a variable
    that is not set and has no default, and a name that is a secret's.
    """

    def walk(node: Any, path: KeyPath) -> Any:
        if isinstance(node, dict):
            return {
                key: inner if not path and key in skip else walk(inner, (*path, key))
                for key, inner in node.items()
            }
        if isinstance(node, list):
            return [walk(inner, (*path, index)) for index, inner in enumerate(node)]
        if not isinstance(node, str) or "${" not in node:
            return node
        value, told = _resolve(
            node, document.place(path), environ, as_text=is_env_value(path) or is_argument(path)
        )
        document.origins[path] = replace(document.origin(path), variables=told)
        return value

    parent: Any = document.data
    for key in under[:-1]:
        parent = parent[key]
    if under:
        parent[under[-1]] = walk(parent[under[-1]], under)
    else:
        document.data = walk(parent, ())


def is_env_value(path: KeyPath) -> bool:
    """Return whether a key names a variable of the ranks, whose text arrives as it stands."""
    inside = path[2:] if path[:1] == ("profiles",) else path
    return len(inside) == 3 and inside[:2] == ("launch", "env")


def _resolve(
    text: str, place: Place, environ: Mapping[str, str] | None, *, as_text: bool
) -> tuple[Any, tuple[str, ...]]:
    told: list[str] = []

    def value_of(match: re.Match[str]) -> str:
        if match[1] is None:
            return "${"
        body = _BODY.fullmatch(match[1]) if match[2] else None
        if body is None:
            hint = "write ${NAME} or ${NAME:default}; $${ stands for a plain ${"
            raise DsforgeError("DSF005", f"`{match[0]}` is no reference to a variable", place, hint)
        value, source = _look_up(body[1], body[2], place, environ)
        told.append(f"{body[1]} {source}")
        return value

    whole = _REFERENCE.fullmatch(text)
    new = _REFERENCE.sub(value_of, text)
    is_scalar = whole is not None and whole[1] is not None and not as_text
    return (_scalar(new) if is_scalar else new), tuple(told)


def _look_up(
    name: str, default: str | None, place: Place, environ: Mapping[str, str] | None
) -> tuple[str, str]:
    if SECRET_NAME.search(name):
        hint = f"`launch: {{env_from: [{name}]}}` hands it to the ranks unwritten"
        raise DsforgeError("DSF005", f"`{name}` looks like a secret and would be written", place, hint)
    if environ is not None and name in environ:
        return environ[name], "from the environment"
    if default is not None:
        return default, "from its default"
    if environ is None:
        message = f"`{name}` would come from the environment, and this command reads the recipe alone"
        hint = f"give it a default, ${{{name}:value}}, or set the key as an argument"
        raise DsforgeError("DSF005", message, place, hint)
    hint = f"export {name}, or give it a default: ${{{name}:value}}"
    raise DsforgeError("DSF005", f"the variable `{name}` is not set", place, hint)


def _scalar(text: str) -> Any:
    """Return the number, truth value or null that a text is in YAML, else the text as it is."""
    try:
        value = parse_value(text, "variable")
    except DsforgeError:
        return text
    return text if isinstance(value, str | list | dict) else value
