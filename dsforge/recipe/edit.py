"""Edits of a recipe's text that leave every other byte alone: comments, order, quotes, line ends."""

from __future__ import annotations

import difflib
import io
import re
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode

from dsforge.base.errors import DsforgeError, Place
from dsforge.recipe.document import KeyPath, parse
from dsforge.recipe.yaml_text import flow_text

_BOM = "\ufeff"
_WIDE = 1_000_000
_ALIAS = re.compile(r"\s*:\s*(\*[^\s,\]}]+)")


def edit(text: str, changes: Mapping[str, Any], file: str = "recipe") -> str:
    """Return a YAML text with dotted keys set to plain values, sections made where there are none.

    Only the value is rewritten, in place; where that is not possible (a value with an anchor) the text goes
    through the YAML library, which keeps comments and order. DsforgeError DSF007 when neither gives the
    wanted data, as for a key inside something that an alias repeats elsewhere.
    """
    for dotted, value in changes.items():
        text = _edit_one(text, tuple(dotted.split(".")), value, file)
    return text


def rename(text: str, dotted: str, name: str, file: str = "recipe") -> str:
    """Return the text with a key called otherwise, its value and comments kept; for migrations.

    DsforgeError DSF007 when there is no such key or the new name is taken.
    """
    *section, old = dotted.split(".")
    body, bom = _without_bom(text)
    node: Node | None = _compose(body)
    for part in section:
        pair = _pair(node, part)
        node = pair[1] if pair else None
    keys = {key.value: key for key, _ in node.value} if isinstance(node, MappingNode) else {}
    if old not in keys or name in keys:
        raise _impossible(dotted, file, "there is no such key, or the new name is taken")
    return bom + _splice(body, keys[old], name)


def unified_diff(before: str, after: str, file: str) -> str:
    """Return the difference of two texts as `diff -u` shows it; empty when they are the same."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), file, file, n=1
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _edit_one(text: str, path: KeyPath, value: Any, file: str) -> str:
    wanted = parse(text, file).data
    tree = wanted
    for key in path[:-1]:
        if not isinstance(tree.get(str(key)), dict):
            tree[str(key)] = {}
        tree = tree[str(key)]
    tree[str(path[-1])] = value
    for way in (_in_place, _through_library):
        try:
            done = way(text, path, value)
            if parse(done, file).data == wanted:
                return done
        except (DsforgeError, YAMLError, LookupError, TypeError):
            continue
    raise _impossible(".".join(map(str, path)), file, "an alias or anchor stands in the way")


def _impossible(dotted: str, file: str, why: str) -> DsforgeError:
    hint = "change it by hand"
    return DsforgeError("DSF007", f"`{dotted}` cannot be edited: {why}", Place(file=file), hint)


def _without_bom(text: str) -> tuple[str, str]:
    return (text[1:], _BOM) if text.startswith(_BOM) else (text, "")


def _round_trip() -> YAML:
    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = _WIDE
    return yaml


def _compose(text: str) -> Node:
    node = _round_trip().compose(io.StringIO(text))
    assert isinstance(node, Node)
    return node


def _pair(node: Node | None, key: str) -> tuple[Node, Node] | None:
    pairs = node.value if isinstance(node, MappingNode) else []
    return next(((name, value) for name, value in pairs if name.value == key), None)


def _splice(text: str, node: Node, new: str) -> str:
    return text[: node.start_mark.index] + new + text[node.end_mark.index :]


def _in_place(text: str, path: KeyPath, value: Any) -> str:
    body, bom = _without_bom(text)
    node = _compose(body)
    for depth, key in enumerate(path):
        rest = path[depth + 1 :]
        pair = _pair(node, str(key))
        if pair is not None and rest and isinstance(pair[1], MappingNode):
            node = pair[1]
            continue
        nested = value
        for missing in reversed(rest):
            nested = {str(missing): nested}
        new = _added(body, node, str(key), nested) if pair is None else _replaced(body, pair, nested)
        return bom + new
    return text


def _is_empty(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.start_mark.index == node.end_mark.index


def _alias(text: str, pair: tuple[Node, Node]) -> re.Match[str] | None:
    """An alias is the very node of its anchor, which stands earlier: look for its own text."""
    key, node = pair
    return _ALIAS.match(text, key.end_mark.index) if node.end_mark.index < key.start_mark.index else None


def _is_block(node: Node) -> bool:
    return isinstance(node, CollectionNode) and not node.flow_style


def _replaced(text: str, pair: tuple[Node, Node], value: Any) -> str:
    key, node = pair
    alias = _alias(text, pair)
    if alias:
        return text[: alias.start(1)] + flow_text(value) + text[alias.end(1) :]
    if _is_empty(node):
        at = text.index(":", key.end_mark.index) + 1
        return f"{text[:at]} {flow_text(value)}{text[at:]}"
    if isinstance(node, ScalarNode):
        return _splice(text, node, flow_text(value, node.style if node.style in {"'", '"'} else None))
    if not _is_block(node):
        return _splice(text, node, flow_text(value))
    before = text[: node.start_mark.index].rstrip()
    return f"{before} {flow_text(value)}{text[_end_of(text, pair) :]}"


def _end_of(text: str, pair: tuple[Node, Node]) -> int:
    """Return where a value's last character stands; a block's own mark lies beyond blanks and comments."""
    key, node = pair
    alias = _alias(text, pair)
    if alias:
        return alias.end(1)
    if _is_empty(node):
        return text.index(":", key.end_mark.index) + 1
    if not _is_block(node) or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end_of(text, last if isinstance(last, tuple) else (last, last))


def _added(text: str, node: Node, key: str, value: Any) -> str:
    assert isinstance(node, MappingNode)
    entry = f"{flow_text(key)}: {flow_text(value)}"
    if node.flow_style:
        if not node.value:
            return _splice(text, node, f"{{{entry}}}")
        at = _end_of(text, node.value[-1])
        return f"{text[:at]}, {entry}{text[at:]}"
    line_end = "\r\n" if "\r\n" in text else "\n"
    at = _end_of(text, node.value[-1])
    stop = text.find("\n", at)
    indent = " " * node.value[0][0].start_mark.column
    if stop < 0:
        return f"{text}{line_end}{indent}{entry}{line_end}"
    return f"{text[: stop + 1]}{indent}{entry}{line_end}{text[stop + 1 :]}"


def _through_library(text: str, path: KeyPath, value: Any) -> str:
    body, bom = _without_bom(text)
    crlf = "\r\n" in body
    yaml = _round_trip()
    tree = yaml.load(body.replace("\r\n", "\n"))
    node = tree
    for key in path[:-1]:
        if not isinstance(node.get(key), dict):
            node[key] = {}
        node = node[key]
    node[path[-1]] = value
    out = io.StringIO()
    yaml.dump(tree, out)
    return bom + (out.getvalue().replace("\n", "\r\n") if crlf else out.getvalue())
