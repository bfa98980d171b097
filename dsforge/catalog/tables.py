"""Reads the catalogue's YAML tables: models, sizes, hardware."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from dsforge.base.errors import DsforgeError
from dsforge.base.units import parse_bytes, parse_count
from dsforge.catalog.yaml_tables import table


@dataclass(frozen=True, slots=True)
class ModelPreset:
    """A published model shape. Unset fields take the defaults of its family (`arch`)."""

    name: str
    nominal_parameters: int
    source: str
    shape: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rates:
    """GB/s of memory and, in one direction a GPU, of its fast link and network port, as data sheets say.

    `like`: the generation of GPUs whose constants an estimate takes. `domain`: GPUs that the link joins
    across nodes; 1 where it ends at the node.
    """

    memory_gb_s: float
    link_gb_s: float
    network_gb_s: float
    like: str
    domain: int = 1


@dataclass(frozen=True, slots=True)
class Hardware:
    """An accelerator type. `memory_bytes` None: the machine's own memory.

    `accelerator`: cpu, cuda, rocm, which torch calls cuda, too, or hpu. `peak_tflops`: dense TFLOP/s by
    precision. `watts`: of the board at most. `device_names`: what the driver calls it.
    """

    name: str
    accelerator: str
    memory_bytes: int | None
    source: str
    peak_tflops: dict[str, float] = field(default_factory=dict)
    device_names: tuple[str, ...] = ()
    rates: Rates | None = None
    watts: float | None = None
    domain: int = 1
    """GPUs that its fast link joins across nodes, where racks are wired so; 1: it ends at the node."""

    def multiplies_in(self, precision: str) -> bool:
        """Tell whether its data sheet has a matrix rate in a precision; where none is known, it may."""
        return not self.peak_tflops or precision in self.peak_tflops


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """A machine that a cloud rents out: its GPUs, and GB/s of network in one direction for each of them."""

    name: str
    gpu: str
    gpus: int
    network_gb_s: float
    fabric: str
    source: str


@dataclass(frozen=True, slots=True)
class ErrorMeaning:
    """What an error is; where it is met often, why it is one and how it is mended."""

    what: str
    why: str = ""
    mend: str = ""


@cache
def models() -> dict[str, ModelPreset]:
    """Return every model preset by name."""
    presets = {}
    for name, row in table("models").items():
        shape = {key: value for key, value in row.items() if key not in ("nominal", "source")}
        presets[name] = ModelPreset(name, parse_count(row["nominal"]), row["source"], shape)
    return presets


@cache
def hardware() -> dict[str, Hardware]:
    """Return every accelerator type by name."""
    return {
        name: Hardware(
            name,
            row["accelerator"],
            parse_bytes(row["memory"]) if row["memory"] else None,
            row["source"],
            row.get("peak_tflops", {}),
            tuple(row.get("device_names", ())),
            Rates(**row["rates"]) if "rates" in row else None,
            row.get("watts"),
            row.get("rates", {}).get("domain", 1),
        )
        for name, row in table("hardware").items()
    }


@cache
def cluster_shapes() -> dict[str, ClusterShape]:
    """Return every rented machine by name."""
    return {name: ClusterShape(name, **row) for name, row in table("clusters").items()}


@cache
def errors() -> dict[str, ErrorMeaning]:
    """Return what each error code means that is not a rule's, in the order of codes."""
    rows = sorted(table("errors").items())
    return {code: ErrorMeaning(**(row if isinstance(row, dict) else {"what": row})) for code, row in rows}


def sizes() -> dict[str, str]:
    """Return the preset that each bare size stands for."""
    return dict(table("sizes"))


def find_model(name: str) -> ModelPreset:
    """Return a preset by name or size; DsforgeError DSF030 lists the nearest."""
    key = name.strip()
    by_size = {size.lower(): preset for size, preset in sizes().items()}
    known = models()
    if key.lower() in by_size:
        return known[by_size[key.lower()]]
    if key.lower() in known:
        return known[key.lower()]
    if "/" in key:
        hint = "a model of Hugging Face is named by the path of its config.json"
        raise DsforgeError("DSF030", f"unknown model `{name}`", hint=hint)
    raise DsforgeError(
        "DSF030", f"unknown model `{name}`", hint=_hint(key, [*known, *sizes()], "presets list")
    )


def find_hardware(name: str) -> Hardware:
    """Return an accelerator type by name; DsforgeError DSF031 lists the nearest."""
    known = hardware()
    if name.strip().lower() in known:
        return known[name.strip().lower()]
    raise DsforgeError("DSF031", f"unknown gpu `{name}`", hint=_hint(name, known, "presets list"))


def hardware_of_device(device_name: str) -> Hardware | None:
    """Return the accelerator type that a driver calls by this name, None for one that is not catalogued."""
    return next((kind for kind in hardware().values() if device_name in kind.device_names), None)


def _hint(wrong: str, known: Iterable[str], command: str) -> str:
    names = list(known)
    close = difflib.get_close_matches(wrong.lower(), names, n=1, cutoff=0.4)
    if not close:
        close = [name for name in names if name.startswith(wrong.lower())][:1]
    return f"did you mean `{close[0]}`?" if close else f"`dsforge {command}` lists what is known"
