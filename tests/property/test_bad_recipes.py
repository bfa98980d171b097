"""Recipes broken at random: the commands refuse them with code, place and hint, and never fail themselves."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from dsforge.cli.main import main
from tests.support.recipes import SHIPPED, SMALL

GOOD = [SMALL, *(path.read_text("utf-8") for path in SHIPPED)]

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**40), 10**40),
    st.sampled_from([0, -1, 2**31, 2**63, 2**64, 10**18, 10**19]),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=20),
    st.sampled_from(["auto", "1e400", "-1", "4M tokens", "\x1b[31m", "\x00", "~", "=", "!x", "a" * 5000]),
    st.just([]),
    st.just({}),
    st.recursive(st.just(1), lambda inner: st.lists(inner, max_size=3), max_leaves=9),
    st.just({"deep": {"deeper": {"deepest": [[[[[1]]]]]}}}),
)
keys = st.sampled_from(
    ["", "x", "tp", "batch", "model", "\x1b", "<<", "a.b", "profiles", "0", "é"]
) | st.text(max_size=8)


def _paths(node: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [prefix, *(path for key, value in inner for path in _paths(value, (*prefix, key)))]


def _at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """Return the bytes of a recipe with a few things changed in the tree, the text, or both."""
    yaml = YAML(pure=True)
    tree = YAML(typ="safe", pure=True).load(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(_paths(tree)[1:] or [()]))
        if not path:
            continue
        parent = _at(tree, path[:-1])
        match draw(st.sampled_from(["drop", "rename", "set", "insert", "move"])):
            case "drop":
                del parent[path[-1]]
            case "rename" if isinstance(parent, dict):
                parent[draw(keys)] = parent.pop(path[-1])
            case "insert" if isinstance(parent, dict):
                parent[draw(keys)] = copy.deepcopy(draw(values))
            case "move" if isinstance(parent, dict):
                tree[path[-1]] = copy.deepcopy(parent[path[-1]])
            case _:
                parent[path[-1]] = copy.deepcopy(draw(values))
    stream = io.StringIO()
    yaml.dump(tree, stream)
    text = stream.getvalue().encode("utf-8", "surrogatepass")
    for _ in range(draw(st.integers(0, 2))):
        lines = text.split(b"\n")
        line = draw(st.integers(0, len(lines) - 1))
        at = draw(st.integers(0, len(text)))
        match draw(st.sampled_from(["duplicate", "cut", "noise", "tab", "none"])):
            case "duplicate":
                lines.insert(line, lines[line])
                text = b"\n".join(lines)
            case "cut":
                text = text[:at]
            case "noise":
                text = text[:at] + draw(st.binary(min_size=1, max_size=3)) + text[at:]
            case "tab":
                text = text[:at] + b"\t" + text[at:]
            case _:
                pass
    return text


def _run(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return code, out.getvalue(), err.getvalue()


def _check(code: int, out: str, err: str, arguments: tuple[str, ...]) -> None:
    assert code in {0, 1, 2, 3}, (code, err)
    assert "Traceback" not in err
    assert "\x1b" not in out + err
    if "--json" in arguments and "validate" in arguments:
        shown = json.loads(out)
        assert shown["ok"] is (code == 0)
        found = [finding for recipe in shown["recipes"] for finding in recipe["findings"]]
    elif "--json" in arguments and out:
        found = json.loads(out).get("findings", [])
    else:
        assert code == 0 or err.startswith(("error[DSF", "warning[DSF")), err
        return
    assert code == 0 or any(one["severity"] == "error" for one in found)
    for one in found:
        assert one["place"], one
        assert one["hint"], one
        assert one["message"]


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(broken())
def test_bad_recipes_are_refused_in_words(text: bytes):
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder, "recipe.yaml")
        recipe.write_bytes(text)
        for arguments in (
            ("validate", "--json", str(recipe)),
            ("plan", "--json", str(recipe)),
            ("render", str(recipe), "--out", str(Path(folder, "bundle"))),
        ):
            _check(*_run(*arguments), arguments)


@settings(max_examples=30)
@given(st.text(max_size=30).filter(lambda text: not text.startswith("-")), values)
def test_bad_arguments_are_refused_in_words(key: str, value: Any):
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder, "recipe.yaml")
        recipe.write_text(SMALL, "utf-8")
        for argument in (f"{key}={value}", f"batch.micro={value}", f"launch.env.A={value}", f"{key}=1"):
            arguments = ("validate", "--json", str(recipe), argument)
            _check(*_run(*arguments), arguments)
