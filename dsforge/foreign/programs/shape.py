"""The model that options describe, as the shape of a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsforge.base.errors import DsforgeError, Place
from dsforge.catalog.families import Family, families
from dsforge.external.values import INIT_STD
from dsforge.foreign.programs.carrying import Carrying
from dsforge.foreign.programs.said import Said, Solved

_WRITTEN = ("gpt", "llama")
"""Families whose shape can be written out in a recipe."""
_TRAITS = ("position", "norm", "activation", "bias", "qkv_bias", "qk_norm")
_REQUIRED = ("layers", "hidden", "heads")


def carry_shape(carrying: Carrying, found: Mapping[str, Solved], file: str) -> None:
    """Carry the model's shape, unless a model is given beside the file.

    DsforgeError DSF691 when the options describe a model of no family that a recipe can write out.
    """
    for name in _TRAITS:
        if (one := found.get(f"model.{name}")) is not None:
            carrying.used.add(one.said.option)
    if "model" in carrying.given:
        for name, one in found.items():
            if name.startswith("model."):
                carrying.used.add(one.said.option)
        return
    arch = _family(found, file)
    carrying.derive("model.arch", arch, _reasons(found), _place(found))
    _sizes(carrying, found)
    _details(carrying, found, families()[arch])
    if (std := found.get("model.init_std")) is not None:
        carrying.used.add(std.said.option)
        if std.value != INIT_STD:
            carrying.leave(std.said, f"recipes draw initial weights with a deviation of {INIT_STD}")


def _sizes(carrying: Carrying, found: Mapping[str, Solved]) -> None:
    for name in _REQUIRED:
        if (one := found.get(f"model.{name}")) is None:
            carrying.need(f"model.{name}", None, "the file does not say it")
        else:
            carrying.carry(f"model.{name}", one.value, one.said)
    if (one := found.get("model.ffn_hidden")) is not None:
        carrying.carry("model.ffn_hidden", one.value, one.said)


def _details(carrying: Carrying, found: Mapping[str, Solved], family: Family) -> None:
    """Carry what is not what the family has anyway."""
    hidden, heads = (
        found[f"model.{name}"].value if f"model.{name}" in found else 1 for name in _REQUIRED[1:]
    )
    usual: dict[str, Any] = {
        "kv_heads": heads,
        "head_dim": max(1, hidden // max(1, heads)),
        "tied": family.tied,
        "norm_eps": family.norm_eps,
        "rope_theta": 10_000.0,
    }
    for name, value in usual.items():
        one = found.get(f"model.{name}")
        if one is None or (name == "rope_theta" and family.traits.position != "rope"):
            continue
        carrying.used.add(one.said.option)
        if one.value != value:
            carrying.derive(f"model.{name}", one.value, _source(one.said), one.said.place)


def _source(said: Said) -> str:
    return said.option if said.given else f"the default of {said.option}"


def _traits(found: Mapping[str, Solved]) -> dict[str, Any]:
    return {name: found[f"model.{name}"].value for name in _TRAITS if f"model.{name}" in found}


def _family(found: Mapping[str, Solved], file: str) -> str:
    said = _traits(found)
    for name in _WRITTEN:
        traits = families()[name].traits
        own = {
            "position": traits.position,
            "norm": traits.norm,
            "activation": traits.activation,
            "bias": traits.mlp_bias,
            "qkv_bias": traits.qkv_bias,
            "qk_norm": traits.qk_norm,
        }
        if all(own[key] == value for key, value in said.items()):
            return name
    words = ", ".join(f"{key} {value}" for key, value in said.items())
    hint = "add --model NAME: a preset, or a config.json that says it"
    raise DsforgeError(
        "DSF691", f"no shape that a recipe writes out has {words}", _place(found) or Place(file), hint
    )


def _place(found: Mapping[str, Solved]) -> Place | None:
    places = [found[f"model.{name}"].said.place for name in _TRAITS if f"model.{name}" in found]
    return next((place for place in places if place is not None), None)


def _reasons(found: Mapping[str, Solved]) -> str:
    return ", ".join(f"{key} {str(value).lower()}" for key, value in _traits(found).items())
