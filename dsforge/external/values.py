"""Everything a recipe says, by name, with what planning resolves in place of `auto`."""

from __future__ import annotations

from typing import Any

from dsforge.catalog.tables import Hardware
from dsforge.external.vocabulary import vocab_divisor
from dsforge.layout.shape import Shape, padded_vocab
from dsforge.recipe.settled import SettledRecipe

INIT_STD = 0.02
"""Standard deviation of initial weights (Radford et al. 2019; Megatron's --init-method-std default)."""
_SHAPE = (
    *("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab", "max_positions", "tied"),
    *("norm_eps", "rope_theta", "arch"),
)
RESOLVED = ("parallel.dp", "parallel.zero", "batch.micro", "train.steps", "plan.accumulation_steps")
"""Names that are None where another fault of the recipe keeps them from being known."""
RECIPE_KEYS = {"batch.global_size": "batch.global"}
"""Recipe keys that cannot stand in an expression, by the name that does."""
_TRAITS = ("norm", "activation", "position", "qkv_bias", "qk_norm")


def recipe_values(
    recipe: SettledRecipe,
    shape: Shape,
    hardware: Hardware,
    *,
    dp: int | None,
    zero: int | None,
    micro: int | None,
    accumulation_steps: int | None,
    steps: int | None,
    eval_samples: int,
) -> dict[str, Any]:
    """Return the values by dotted name: the recipe's keys, `model.*` resolved, `plan.*` computed.

    Those in RESOLVED may be None.
    """
    parallel, batch = recipe.parallel, recipe.batch
    model_parallel = parallel.tp * parallel.pp * parallel.cp
    values: dict[str, Any] = {"name": recipe.name}
    for name in ("parallel", "offload", "train", "optimizer", "checkpoint", "monitor", "cluster"):
        section = getattr(recipe, name)
        values |= {f"{name}.{key}": getattr(section, key) for key in type(section).model_fields}
    values |= {f"model.{key}": getattr(shape, key) for key in _SHAPE}
    values |= {f"model.{key}": getattr(shape.traits, key) for key in _TRAITS}
    traits, data = shape.traits, recipe.data
    values |= {
        "model.bias": traits.qkv_bias and traits.output_bias and traits.mlp_bias,
        "model.init_std": INIT_STD,
        "parallel.dp": dp,
        "parallel.zero": zero,
        "batch.global_size": batch.global_size,
        "batch.micro": micro,
        "batch.seq_len": batch.seq_len,
        "train.steps": steps,
        "train.eval_samples": eval_samples,
        "data.train": data.train if data else (),
        "data.valid": (data.valid or ()) if data else (),
        "plan.train_sets": len(data.train) if data else 0,
        "data.workers": data.workers if data else 2,
        "data.tokenizer": data.tokenizer if data else None,
        "launch.collective_timeout": recipe.launch.collective_timeout,
        "plan.world_size": model_parallel * dp if dp is not None else None,
        "plan.accumulation_steps": accumulation_steps,
        "plan.accelerator": hardware.accelerator,
        "plan.padded_vocab": padded_vocab(shape.vocab, parallel.tp, vocab_divisor(recipe)),
    }
    return values
