"""The nearest legal key for a wrong one: spelling first, then words of other tools."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from dsforge.recipe.document import KeyPath
from dsforge.recipe.model import Recipe

_DEGREES = {"tensor": "tp", "pipeline": "pp", "pipe": "pp", "context": "cp", "expert": "ep", "data": "dp"}
_SYNONYMS = {
    **{
        f"{word}_{kind}{of}": f"parallel.{degree}"
        for word, degree in _DEGREES.items()
        for kind in ("parallel", "model_parallel", "parallelism")
        for of in ("", "_size", "_degree")
    },
    "model_parallel_size": "parallel.tp",
    "zero_stage": "parallel.zero",
    "zero_optimization": "parallel.zero",
    "stage": "parallel.zero",
    "micro_batch": "batch.micro",
    "micro_batch_size": "batch.micro",
    "train_micro_batch_size_per_gpu": "batch.micro",
    "global_batch": "batch.global",
    "global_batch_size": "batch.global",
    "train_batch_size": "batch.global",
    "gradient_accumulation_steps": "batch.micro",
    "seq_length": "batch.seq_len",
    "sequence_length": "batch.seq_len",
    "gpus": "cluster.gpus_per_node",
    "learning_rate": "optimizer.lr",
    "gradient_clipping": "optimizer.grad_clip",
    "clip_grad": "optimizer.grad_clip",
    "activation_checkpointing": "train.recompute",
    "recompute_granularity": "train.recompute",
    "recompute_num_layers": "train.recompute_every",
    "activation_checkpoint_interval": "train.recompute_every",
    "hidden_dropout": "train.dropout",
    "resid_pdrop": "train.dropout",
    "attn_pdrop": "train.attention_dropout",
    "bf16": "train.precision",
    "fp16": "train.precision",
    "train_iters": "train.steps",
    "max_steps": "train.steps",
    "save_interval": "checkpoint.every_steps",
    "num_layers": "model.layers",
    "hidden_size": "model.hidden",
    "num_attention_heads": "model.heads",
    "vocab_size": "model.vocab",
}

_FEW = 12
"""Keys that a hint can list."""


def section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the section class inside an annotation, through unions and Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in get_args(annotation):
        found = section_of(inner)
        if found:
            return found
    return None


def keys_of(section: type[BaseModel]) -> dict[str, Any]:
    """Return the keys a section takes, as written in YAML, with their annotations."""
    return {field.alias or name: field.annotation for name, field in section.model_fields.items()}


def walk(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield every dotted key of the recipe."""
    for key, annotation in keys_of(section).items():
        yield prefix + key
        inner = section_of(annotation)
        if inner:
            yield from walk(inner, f"{prefix}{key}.")


def _section_at(path: KeyPath) -> type[BaseModel] | None:
    section: type[BaseModel] | None = Recipe
    for key in path:
        if section is None:
            return None
        section = section_of(keys_of(section).get(str(key)))
    return section


def few_keys(path: KeyPath) -> str | None:
    """Return the keys of the section at a path, listed; None where there is none, or they are many."""
    section = _section_at(path)
    keys = list(keys_of(section)) if section else []
    return ", ".join(keys) if 0 < len(keys) <= _FEW else None


def nearest(path: KeyPath) -> str | None:
    """Return the dotted legal key that a wrong key path most likely meant."""
    wrong = str(path[-1])
    parent = ".".join(str(part) for part in path[:-1])
    section = _section_at(path[:-1])
    siblings = list(keys_of(section)) if section else []
    folded = wrong.lower().replace("-", "_")
    if folded in _SYNONYMS and _SYNONYMS[folded].rsplit(".", 1)[-1] != wrong:
        return _SYNONYMS[folded]
    close = difflib.get_close_matches(folded, siblings, n=1, cutoff=0.6)
    if close:
        return f"{parent}.{close[0]}" if parent else close[0]
    elsewhere = {dotted.rsplit(".", 1)[-1]: dotted for dotted in reversed(list(walk(Recipe)))}
    close = difflib.get_close_matches(folded, list(elsewhere), n=1, cutoff=0.7)
    if close:
        return elsewhere[close[0]]
    close = difflib.get_close_matches(folded, list(_SYNONYMS), n=1, cutoff=0.8)
    return _SYNONYMS[close[0]] if close else None


def removal(key: str) -> str:
    """Return the words for taking a key out, in the file or by an argument."""
    return f"remove {key} (as an argument: `{key}=null`)"


def is_free_mapping(path: KeyPath) -> bool:
    """Return whether a key holds a mapping whose keys the user chooses, such as `launch.env`."""
    section = _section_at(path[:-1])
    return section is not None and get_origin(keys_of(section).get(str(path[-1]))) is dict


def is_key(path: KeyPath) -> bool:
    """Return whether a key path is one of the recipe's."""
    for depth, key in enumerate(path):
        if depth and is_free_mapping(path[:depth]):
            return depth == len(path) - 1
        section = _section_at(path[:depth])
        if section is None or str(key) not in keys_of(section):
            return False
    return bool(path)
