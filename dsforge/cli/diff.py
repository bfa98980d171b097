"""`dsforge diff`: in what two recipes differ, and what the difference does."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsforge.base.exits import ExitCode
from dsforge.cli import output
from dsforge.cli.options import JsonOption, ProfileOption, load_sealed

if TYPE_CHECKING:
    from dsforge.ops.diff import Side
    from dsforge.recipe.consequences import Consequence


class FailOn(StrEnum):
    """The least difference that makes the command fail."""

    CONVERGENCE = "convergence"
    EXECUTION = "execution"
    ANY = "any"


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    app.command("diff", rich_help_panel=panel)(diff)


def diff(
    a: Annotated[Path, typer.Argument(help="A recipe or a .lock file.", show_default=False)],
    b: Annotated[Path, typer.Argument(help="Another.", show_default=False)],
    profile: ProfileOption = None,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="Exit 1 for this kind of difference or a weightier one.")
    ] = FailOn.ANY,
    json: JsonOption = False,
) -> None:
    """Compare by consequence: changes what is learnt (convergence), how it runs (execution), or neither."""
    from dsforge.ops.diff import compare

    if json:
        output.use_json()
    found = compare(_side(a, profile), _side(b, profile))
    if json:
        worst = found[0].consequence.word if found else None
        rows: list[dict[str, Any]] = [one.as_dict() for one in found]
        output.as_json({"a": str(a), "b": str(b), "worst": worst, "differences": rows})
    else:
        for one in found:
            values = one.a if one.a == one.b else f"{_text(one.a)} -> {_text(one.b)}"
            output.line(f"{one.consequence.word:<11}  {one.key}: {values}")
    failing = any(one.consequence >= _least(fail_on) for one in found)
    raise typer.Exit(int(ExitCode.FINDINGS if failing else ExitCode.OK))


def _least(fail_on: FailOn) -> Consequence:
    from dsforge.recipe.consequences import Consequence

    return Consequence.COSMETIC if fail_on is FailOn.ANY else Consequence[fail_on.name]


def _side(path: Path, profile: str | None) -> Side:
    from dsforge.ops.diff import Side, rows_of, times_of
    from dsforge.ops.lock import read_lock
    from dsforge.recipe.origins import Layer
    from dsforge.recipe.resolved import resolved_data

    if path.suffix == ".lock":
        lock = read_lock(path)
        plan = lock.plan
        times = plan["layout"].get("partition_weights_sha256")  # a lock of an older build has none
        return Side(lock.recipe, is_named=False, rows=plan["model"]["padded_vocab"], times=times)
    loaded = load_sealed(path, None, None, profile)
    named = loaded.origin("name").layer is not Layer.DEFAULT
    return Side(resolved_data(loaded.recipe), named, loaded.text, rows_of(loaded), times_of(loaded))


def _text(value: Any) -> str:
    from dsforge.recipe.yaml_text import flow_text

    if isinstance(value, dict):
        value = {key: inner for key, inner in value.items() if inner is not None}
    return "absent" if value is None else flow_text(value)
