"""What one version of DeepSpeed's configuration takes: of `deepspeed.yaml`, or of the installed library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from ruamel.yaml import YAML

JSON_TYPES = ("bool", "int", "float", "text", "list", "object", "null")


@dataclass(frozen=True, slots=True)
class Section:
    """The keys of one mapping. Checked: another key is rejected; open: another key may be read elsewhere."""

    keys: Mapping[str, Key]
    checked: bool = False
    open: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """One key: `kind` is bool, int, float, text or any; `default` None where the library names none.

    `takes`: the JSON types that the library does not refuse; `least` and `most`: the bounds of a number.
    """

    kind: str = "any"
    default: Any = None
    choices: tuple[Any, ...] = ()
    replaced_by: str | None = None
    section: Section | None = None
    takes: tuple[str, ...] = JSON_TYPES
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Coming:
    """Between which two releases a key came."""

    after: str
    by: str


@dataclass(frozen=True, slots=True)
class DeepSpeedKeys:
    """A version's configuration.

    `removed`: dotted keys that it refuses by name. `coming`: those of `top` that only later versions have.
    `optimizers`: by name and by what computes it (gpu, cpu, torch) the parameters with their defaults;
    `schedulers` likewise, "required" without a default.
    """

    version: str
    top: Section
    removed: frozenset[str]
    optimizers: Mapping[str, Mapping[str, Mapping[str, Any]]]
    schedulers: Mapping[str, Mapping[str, Any]]
    source: str = field(default="catalogue")
    coming: Mapping[str, Coming] = field(default_factory=dict)

    def section(self, path: Sequence[str]) -> Section | None:
        """Return the section at a path of keys; None where no section is known."""
        found: Section | None = self.top
        for name in path:
            found = found.keys[name].section if found and name in found.keys else None
        return found


def keys_from(table: Mapping[str, Any], source: str) -> DeepSpeedKeys:
    """Return the typed form of what the probe prints."""
    return DeepSpeedKeys(
        version=str(table["version"]),
        top=_section({"keys": table["keys"]}),
        removed=frozenset(table["removed"]),
        optimizers=table["optimizers"],
        schedulers=table["schedulers"],
        source=source,
    )


def _section(row: Mapping[str, Any]) -> Section:
    keys = {name: _key(inner) for name, inner in row["keys"].items()}
    return Section(keys, bool(row.get("checked")), bool(row.get("open")))


def _key(row: Mapping[str, Any]) -> Key:
    takes = tuple(row.get("takes", JSON_TYPES))
    if "keys" in row:
        return Key(section=_section(row), takes=takes)
    return Key(
        kind=row["kind"],
        default=row.get("default"),
        choices=tuple(row.get("choices", ())),
        replaced_by=row.get("replaced_by"),
        takes=takes,
        least=row.get("least"),
        most=row.get("most"),
    )


@cache
def known_keys() -> DeepSpeedKeys:
    """Return the catalogue's version, for machines without the library."""
    text = resources.files("dsforge.catalog.engines").joinpath("deepspeed.yaml").read_text("utf-8")
    return keys_from(YAML(typ="safe", pure=True).load(text), "catalogue")
