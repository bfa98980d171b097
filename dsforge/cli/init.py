"""`dsforge init`: a starter recipe, or one made from another tool's file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.cli import complete, output

_GPUS = 8
_GPU = "a100-sxm-80gb"
_MODEL = "gpt2"


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    app.command("init", rich_help_panel=panel)(init)


def init(
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="With --from-...: what the file does not say."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help=f"A preset or a size; see `dsforge presets list`. Default: {_MODEL}.",
            autocompletion=complete.models,
        ),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, max=1_048_576, help=f"GPUs in all. Default: {_GPUS}.")
    ] = None,
    gpus_per_node: Annotated[int, typer.Option(min=1, max=1024, help="GPUs of one host.")] = 8,
    gpu: Annotated[
        str | None,
        typer.Option(help=f"The GPU, or cpu. Default: {_GPU}.", autocompletion=complete.gpus),
    ] = None,
    seq_len: Annotated[
        int | None,
        typer.Option(
            "--seq-len", min=1, help="Tokens a sample. Default: 4096, or as many as the model takes."
        ),
    ] = None,
    from_deepspeed: Annotated[
        Path | None, typer.Option("--from-deepspeed", help="A DeepSpeed JSON to make the recipe from.")
    ] = None,
    from_accelerate: Annotated[
        Path | None, typer.Option("--from-accelerate", help="An Accelerate YAML to make the recipe from.")
    ] = None,
    from_megatron: Annotated[
        Path | None,
        typer.Option("--from-megatron", help="A launch script to make the recipe from; it is not run."),
    ] = None,
    from_neox: Annotated[
        list[Path] | None,
        typer.Option(
            "--from-neox", help="A GPT-NeoX YAML to make the recipe from; again for each further file."
        ),
    ] = None,
    flavour: Annotated[
        str | None,
        typer.Option(
            help="With --from-megatron: megatron-deepspeed or megatron-lm. Default: by the options."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write. Default: stdout.")] = None,
    schema: Annotated[
        str,
        typer.Option(help="Where an editor finds the schema: a path from the recipe's folder, or a URL."),
    ] = "recipe.schema.json",
) -> None:
    """Write a recipe that fits the model onto the GPUs: the smallest TP x PP whose states and sums fit.

    With --out, the schema that editors check it by is written where --schema says, unless it is there.
    With --from-..., the recipe says what the file says; what it could not carry is listed on stderr and in
    the recipe's first lines.
    """
    more = tuple(from_neox or ())
    files = {
        "deepspeed": from_deepspeed,
        "accelerate": from_accelerate,
        "megatron": from_megatron,
        "neox": more[0] if more else None,
    }
    if flavour is not None and from_megatron is None:
        raise typer.BadParameter("`--flavour` goes with --from-megatron only")
    if any(files.values()):
        text = _imported(
            files,
            (
                model,
                gpus,
                gpus_per_node,
                gpu,
                seq_len,
                tuple(changes or ()),
                flavour,
                more[1:],
            ),
            schema,
        )
    else:
        text = _started(model, gpus, gpus_per_node, gpu, schema, seq_len, changes)
    if out is None:
        output.data(text)
        return
    _write(out, text, schema)


def _started(
    model: str | None,
    gpus: int | None,
    gpus_per_node: int,
    gpu: str | None,
    schema: str,
    seq_len: int | None,
    changes: list[str] | None,
) -> str:
    from dsforge.ops.starter import starter_recipe

    if changes:
        raise typer.BadParameter(
            f"`{changes[0]}` goes with --from-... only; edit the recipe that init writes"
        )
    return starter_recipe(model or _MODEL, gpus or _GPUS, gpus_per_node, gpu or _GPU, schema, seq_len)


def _imported(
    files: dict[str, Path | None],
    given: tuple[
        str | None, int | None, int, str | None, int | None, tuple[str, ...], str | None, tuple[Path, ...]
    ],
    schema: str,
) -> str:
    from dsforge.foreign.text import Kind
    from dsforge.ops.foreign_init import Wanted, import_recipe
    from dsforge.recipe.schema import editor_header

    named = [(kind, path) for kind, path in files.items() if path is not None]
    if len(named) > 1:
        raise typer.BadParameter("two files to make one recipe from: one --from-... at a time")
    ((kind, path),) = named
    header = editor_header(schema)
    imported = import_recipe(path, Kind(kind), Wanted(*given))
    for one in imported.left:
        output.note(f"not carried: {output.short(str(one))}")
    return header + imported.text


def _write(out: Path, text: str, schema: str) -> None:
    from dsforge.base.files import write_atomically
    from dsforge.recipe.schema import schema_text

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
            "DSF062",
            f"cannot write {out}: {error.strerror}",
            hint="free space or permit writing there, or name another file with --out",
            exit_code=ExitCode.ENVIRONMENT,
        ) from None
    output.note(f"wrote {' and '.join(map(str, written))}; next: dsforge plan {out}")
