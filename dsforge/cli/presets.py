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
    from dsforge.catalog.tables import Hardware
    from dsforge.layout.shape import Shape

_app = typer.Typer(help="Models and GPUs that a recipe may name.", cls=PanelGroup)


def register(app: typer.Typer, panel: str) -> None:
    """Add the command group."""
    app.add_typer(_app, name="presets", rich_help_panel=panel)


@_app.command("list")
def list_presets(json: JsonOption = False) -> None:
    """List model presets, bare sizes, GPU types and rented machines."""
    from dataclasses import asdict

    from dsforge.catalog.tables import cluster_shapes, hardware, models, sizes
    from dsforge.layout.shape import resolve_shape

    shapes = {name: resolve_shape(name, 1) for name in models()}
    if json:
        output.as_json(
            {
                "models": [{"name": name, **_counts(shape)} for name, shape in shapes.items()],
                "sizes": sizes(),
                "gpus": [asdict(kind) for kind in hardware().values()],
                "clusters": [asdict(shape) for shape in cluster_shapes().values()],
            }
        )
        return
    rows = [
        (
            name,
            format_count(shape.parameters()),
            format_count(shape.active_parameters()) if shape.experts else "",
            ", ".join(_trainers(shape)),
            models()[name].source,
        )
        for name, shape in shapes.items()
    ]
    columns = ("name", "parameters", "active", "trainers", "source")
    output.table("Models (model: NAME; trainers: which ones build it)", columns, rows)
    output.line()
    output.table("Sizes (model: SIZE)", ("size", "stands for"), list(sizes().items()))
    output.line()
    rates = ("name", "memory", "TFLOP/s", "GB/s", "link", "W", "source")
    output.table("GPUs (cluster.gpu: NAME)", rates, [_gpu(kind) for kind in hardware().values()])
    output.line()
    machines = [
        (shape.name, f"{shape.gpus} x {shape.gpu}", f"{shape.network_gb_s:g} {shape.fabric}", shape.source)
        for shape in cluster_shapes().values()
    ]
    output.table("Rented machines (cluster.shape: NAME)", ("name", "GPUs", "GB/s a GPU", "source"), machines)


def _gpu(kind: Hardware) -> tuple[str, ...]:
    """Name, memory, dense 16-bit rate, GB/s of memory and of the fast link, power, source."""
    half = kind.peak_tflops.get("bf16") or kind.peak_tflops.get("fp16")
    figures = (half, kind.rates and kind.rates.memory_gb_s, kind.rates and kind.rates.link_gb_s, kind.watts)
    memory = format_bytes(kind.memory_bytes) if kind.memory_bytes else "-"
    return (kind.name, memory, *(f"{one:g}" if one else "-" for one in figures), kind.source)


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
    output.line()
    for trainer, found in differences.items():
        output.line(f"{trainer} does not train it: {', '.join(found)}" if found else f"{trainer} trains it")


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
        "trainers": _trainers(shape),
    }


def _trainers(shape: Shape) -> list[str]:
    return [trainer for trainer, found in _differences(shape).items() if not found]


def _differences(shape: Shape) -> dict[str, list[str]]:
    """Return by trainer what it cannot honour at any sequence length."""
    from dsforge.catalog.engines.capabilities import capabilities, trainers
    from dsforge.catalog.families import families
    from dsforge.layout.families import differences

    found = {}
    for trainer in map(capabilities, trainers()):
        plain = [families()[name] for name in trainer.families]
        found[trainer.trainer] = differences(shape, plain, 1, trainer.traits)
    return found


def _rows(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is set of a shape, nested parts as `part.key`."""
    rows = []
    for key, value in values.items():
        if isinstance(value, dict):
            rows += [(f"{key}.{inner}", text) for inner, text in _rows(value)]
        elif value is not None and value is not False and value != ():
            rows.append((key, str(value)))
    return rows
