"""`dsforge presets`: models and GPUs that a recipe may name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsforge.base.units import format_bytes, format_count
from dsforge.cli import complete, output
from dsforge.cli.options import JsonOption
from dsforge.cli.panels import PanelGroup

if TYPE_CHECKING:
    from dsforge.layout.shape import Shape

_app = typer.Typer(help="Models and GPUs that a recipe may name.", cls=PanelGroup)
_TRAINER = "forge"


def register(app: typer.Typer, panel: str) -> None:
    """Add the command group."""
    app.add_typer(_app, name="presets", rich_help_panel=panel)


@_app.command("list")
def list_presets(json: JsonOption = False) -> None:
    """List model presets, bare sizes and GPU types."""
    from dsforge.catalog.tables import hardware, models, sizes
    from dsforge.layout.shape import resolve_shape

    shapes = {name: resolve_shape(name, 1) for name in models()}
    if json:
        output.as_json(
            {
                "models": [{"name": name, **_counts(shape)} for name, shape in shapes.items()],
                "sizes": sizes(),
                "gpus": [{"name": h.name, "memory_bytes": h.memory_bytes} for h in hardware().values()],
            }
        )
        return
    rows = [
        (
            name,
            format_count(shape.parameters()),
            format_count(shape.active_parameters()) if shape.experts else "",
            _trains(shape),
            models()[name].source,
        )
        for name, shape in shapes.items()
    ]
    columns = ("name", "parameters", "active", _TRAINER, "source")
    output.table(f"Models (model: NAME; {_TRAINER}: whether this trainer builds it)", columns, rows)
    output.line()
    output.table("Sizes (model: SIZE)", ("size", "stands for"), list(sizes().items()))
    output.line()
    gpus = [
        (h.name, format_bytes(h.memory_bytes) if h.memory_bytes else "-", h.source)
        for h in hardware().values()
    ]
    output.table("GPUs (cluster.gpu: NAME)", ("name", "memory", "source"), gpus)


@_app.command("show")
def show_preset(
    name: Annotated[
        str,
        typer.Argument(
            help="A model preset, a bare size, or the path of a config.json.", autocompletion=complete.models
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Show a model's shape and its exact parameters by component."""
    from dataclasses import asdict

    if json:
        output.use_json()
    shape, source = _find(name)
    differences = _differences(shape)
    if json:
        output.as_json(
            {
                "shape": asdict(shape),
                "source": source,
                **_counts(shape),
                "parameters_by_component": shape.components(),
                "differs": differences,
            }
        )
        return
    values = asdict(shape)
    if shape.traits.position != "learned":
        del values["max_positions"]
    output.table(f"{shape.name} ({source})", ("shape", "value"), _rows(values))
    output.line()
    counts = [(part, f"{count:,}") for part, count in shape.components().items()]
    counts.append(("total", f"{shape.parameters():,}"))
    if shape.experts:
        counts.append(("active for a token", f"{shape.active_parameters():,}"))
    output.table("Parameters", ("component", "count"), counts)
    if differences:
        output.line()
        output.line(f"{_TRAINER} does not train it: {', '.join(differences)}")


def _find(name: str) -> tuple[Shape, str]:
    from dsforge.base.errors import Place
    from dsforge.catalog.tables import find_model
    from dsforge.layout.shape import resolve_shape
    from dsforge.recipe.model_file import names_config, read_model_config

    if names_config(name):
        config = read_model_config(Path(name), Place())
        # Learned positions come from the file; others take no parameters.
        return resolve_shape(name, 1, config), name
    preset = find_model(name)
    return resolve_shape(name, preset.shape.get("max_positions", 1)), preset.source


def _counts(shape: Shape) -> dict[str, Any]:
    return {
        "parameters": shape.parameters(),
        "active_parameters": shape.active_parameters(),
        "family": shape.arch,
        "trainers": [] if _differences(shape) else [_TRAINER],
    }


def _trains(shape: Shape) -> str:
    if _differences(shape):
        return ""
    return f"to {shape.traits.window} tokens" if shape.traits.window else "yes"


def _differences(shape: Shape) -> list[str]:
    """Return what the trainer cannot honour at any sequence length."""
    from dsforge.catalog.engines.capabilities import capabilities
    from dsforge.catalog.families import families
    from dsforge.layout.families import differences

    return differences(shape, [families()[name] for name in capabilities(_TRAINER).families], 1)


def _rows(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is set of a shape, nested parts as `part.key`."""
    rows = []
    for key, value in values.items():
        if isinstance(value, dict):
            rows += [(f"{key}.{inner}", text) for inner, text in _rows(value)]
        elif value is not None and value is not False and value != ():
            rows.append((key, str(value)))
    return rows
