"""`dsforge init`: a starter recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.cli import complete, output


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    app.command("init", rich_help_panel=panel)(init)


def init(
    model: Annotated[
        str,
        typer.Option(help="A preset or a size; see `dsforge presets list`.", autocompletion=complete.models),
    ] = "gpt2",
    gpus: Annotated[int, typer.Option(min=1, max=1_048_576, help="GPUs in all.")] = 8,
    gpus_per_node: Annotated[int, typer.Option(min=1, max=1024, help="GPUs of one host.")] = 8,
    gpu: Annotated[
        str, typer.Option(help="The GPU, or cpu.", autocompletion=complete.gpus)
    ] = "a100-sxm-80gb",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write. Default: stdout.")] = None,
    schema: Annotated[
        str,
        typer.Option(help="Where an editor finds the schema: a path from the recipe's folder, or a URL."),
    ] = "recipe.schema.json",
) -> None:
    """Write a recipe that fits the model onto the GPUs: the smallest TP x PP whose states fit.

    With --out, the schema that editors check it by is written where --schema says, unless it is there.
    """
    from dsforge.base.files import write_atomically
    from dsforge.ops.starter import starter_recipe
    from dsforge.recipe.schema import schema_text

    if not schema.isprintable() or " " in schema:
        raise DsforgeError("DSF067", "the place of the schema holds a blank", hint="name one without blanks")
    text = starter_recipe(model, gpus, gpus_per_node, gpu, schema)
    if out is None:
        output.data(text)
        return
    if out.exists():
        raise DsforgeError("DSF061", f"{out} exists", hint="name another file, or remove it")
    written = [out]
    try:
        write_atomically(out, text)
        beside = out.parent / schema
        if "://" not in schema and not beside.exists():
            write_atomically(beside, schema_text())
            written.append(beside)
    except OSError as error:
        raise DsforgeError(
            "DSF062", f"cannot write {out}: {error.strerror}", exit_code=ExitCode.ENVIRONMENT
        ) from None
    output.note(f"wrote {' and '.join(map(str, written))}; next: dsforge plan {out}")
