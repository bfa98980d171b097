"""What a trainer of this build honours, read from its data file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from ruamel.yaml import YAML

from dsforge.catalog.engines.flavours import FLAVOURS

_NAMES_TRAINER = re.compile(r"^trainer:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Honoured:
    """The values of one recipe key that a trainer takes, and why it takes no others."""

    values: tuple[Any, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What one trainer honours; a key that is not listed is honoured with any legal value."""

    trainer: str
    families: tuple[str, ...]
    """Model families whose shapes it builds."""
    traits: tuple[str, ...]
    """Traits in which its models may differ from their family."""
    vocab_divisor: int
    """The vocabulary is padded to a multiple of this times TP."""
    hugging_face: bool
    """The model is one of transformers' classes, built from a `config.json`."""
    deepspeed: bool
    """DeepSpeed trains, so that its faults are the trainer's."""
    whole_tables: bool
    """Under TP every rank holds the whole embedding and head, and computes all logits."""
    zero_under_tp: int
    """The highest ZeRO stage that it trains with layers split by TP."""
    offloads_together: bool
    """Optimizer states live where parameters do: one is not offloaded without the other."""
    splits_for_experts: bool
    """With TP, sequences of a model with experts are split: each token is sent to its experts once."""
    cuts_parameters: bool
    """Replicas hold parts of the parameters between steps, whatever the ZeRO stage."""
    honours: dict[str, Honoured]

    def tables(self, tp: int) -> int:
        """Return how many times the ranks of a TP group together hold embedding and head."""
        return tp if self.whole_tables else 1

    def takes(self, key: str, value: Any) -> bool:
        """Tell whether a key's value is one that the trainer honours."""
        return key not in self.honours or value in self.honours[key].values

    def computes(self, precision: str, accelerator: str) -> bool:
        """Tell whether it trains in a precision there: DeepSpeed takes no fp16 on a CPU without it."""
        return not (self.deepspeed and precision == "fp16" and accelerator == "cpu")


@cache
def capabilities(trainer: str) -> Capabilities:
    """Return a trainer's capabilities; a trainer without a file falls back to the default one's table."""
    folder = resources.files("dsforge.catalog.engines")
    table = _table(trainer if folder.joinpath(f"{trainer}.yaml").is_file() else "forge")
    return Capabilities(
        trainer=table["trainer"],
        families=tuple(table["families"]),
        traits=tuple(table["traits"]),
        vocab_divisor=table["vocab_divisor"],
        hugging_face=table["hugging_face"],
        deepspeed=table.get("deepspeed", True),
        whole_tables=table.get("whole_tables", False),
        zero_under_tp=table.get("zero_under_tp", 3),
        offloads_together=table.get("offloads_together", False),
        splits_for_experts=table.get("splits_for_experts", False),
        cuts_parameters=table.get("cuts_parameters", False),
        honours={
            key: Honoured(tuple(row["values"]), row["why"])
            for key, row in table["honours"].items()
            if row is not None
        },
    )


@cache
def trainers() -> tuple[str, ...]:
    """Return the trainers of this build: those that have a file; one of another program names no trainer."""
    files = resources.files("dsforge.catalog.engines").iterdir()
    texts = {path.name.removesuffix(".yaml"): path for path in files if path.name.endswith(".yaml")}
    ours = {name for name, path in texts.items() if _NAMES_TRAINER.search(path.read_text("utf-8"))}
    return tuple(sorted(ours - set(FLAVOURS)))


def _table(name: str) -> dict[str, Any]:
    """Return a trainer's file over that of the trainer it is like; a row of null limits nothing."""
    text = resources.files("dsforge.catalog.engines").joinpath(f"{name}.yaml").read_text("utf-8")
    own: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    if "like" not in own:
        return own
    base = _table(own["like"])
    return {**base, **own, "honours": {**base["honours"], **own["honours"]}}
