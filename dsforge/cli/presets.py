"""`dsforge presets`: models and GPUs that a recipe may name."""

from __future__ import annotations

from typing import Annotated

import typer

from dsforge.base.units import format_bytes, format_count
from dsforge.cli import output
from dsforge.cli.options import JsonOption

_app = typer.Typer(help="Models and GPUs that a recipe may name.", no_args_is_help=True)


def register(app: typer.Typer, panel: str) -> None:
    """Add the command group."""
    app.add_typer(_app, name="presets", rich_help_panel=panel)


@_app.command("list")
def list_presets(json: JsonOption = False) -> None:
    """List model presets, bare sizes and GPU types."""
    from dsforge.catalog.tables import hardware, models, sizes
    from dsforge.layout.shape import resolve_shape

    counts = {name: resolve_shape(name, 1).parameters() for name in models()}
    if json:
        output.as_json(
            {
                "models": [{"name": name, "parameters": counts[name]} for name in models()],
                "sizes": sizes(),
                "gpus": [{"name": h.name, "memory_bytes": h.memory_bytes} for h in hardware().values()],
            }
        )
        return
    rows = [(name, format_count(counts[name]), preset.source) for name, preset in models().items()]
    output.table("Models (model: NAME)", ("name", "parameters", "source"), rows)
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
    name: Annotated[str, typer.Argument(help="A model preset or a bare size.")], json: JsonOption = False
) -> None:
    """Show a model's shape and its exact parameters by component."""
    from dataclasses import asdict

    from dsforge.catalog.tables import find_model
    from dsforge.layout.shape import resolve_shape

    if json:
        output.use_json()
    preset = find_model(name)
    shape = resolve_shape(name, preset.shape.get("max_positions", 1))
    if json:
        output.as_json(
            {
                "shape": asdict(shape),
                "source": preset.source,
                "parameters": shape.parameters(),
                "parameters_by_component": shape.components(),
            }
        )
        return
    rows = [(key, str(value)) for key, value in asdict(shape).items() if value is not None]
    output.table(f"{preset.name} ({preset.source})", ("shape", "value"), rows)
    output.line()
    counts = [(part, f"{count:,}") for part, count in shape.components().items()]
    output.table("Parameters", ("component", "count"), [*counts, ("total", f"{shape.parameters():,}")])
