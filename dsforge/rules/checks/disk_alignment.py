"""DSF801: the optimizer goes to a disk where gradients of its parameters begin at whole blocks of it."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.layout.shape import padded_vocab
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_BLOCK = 512 // 4
"""fp32 values of a block of the disk (`O_DIRECT_ALIGNMENT` of deepspeed 0.19.8)."""
_SWAPPED = 1_048_576 // 4
"""fp32 values of the smallest gradient that DeepSpeed writes to the disk."""


def _check(facts: Facts) -> Iterator[Found]:
    offload, ours = facts.recipe.offload, facts.capabilities
    if offload.optimizer != "nvme" or not ours.takes("offload.optimizer", "nvme") or not facts.dp:
        return
    if facts.recipe.trainer == "external" or facts.zero != 3:
        return
    shards = {name: -(-size // facts.dp) for name, size in _matrices(facts).items()}
    # The inputs of a gated MLP may be one matrix.
    if max(shards.values()) * (2 if facts.shape.traits.gated else 1) < _SWAPPED:
        return
    broken = [name for name, shard in shards.items() if shard % _BLOCK]
    if broken:
        yield Found(
            f"a rank has {shards[broken[0]]:,} values of {broken[0]}, which is no multiple of {_BLOCK}: "
            "gradients behind them cannot be read from the disk to their place",
            "offload.optimizer",
            "`optimizer: cpu`, or a vocabulary and widths whose shards are multiples",
            Fix("offload.optimizer", "cpu"),
        )


def _matrices(facts: Facts) -> dict[str, int]:
    """Return the values of the different matrices on a tensor-parallel rank, by name."""
    shape, tp = facts.shape, facts.recipe.parallel.tp
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    cut = {
        "the vocabulary": padded_vocab(shape.vocab, tp, facts.capabilities.vocab_divisor),
        "attention's output": query,
        "queries, keys and values": query + 2 * key,
        **{f"an MLP of width {width:,}": width for width in shape.mlp_widths()},
    }
    whole = {"positions": shape.max_positions} if shape.traits.position == "learned" else {}
    if facts.capabilities.hugging_face:
        cut["keys"] = key
    if shape.experts is not None:
        whole |= {
            "the router": shape.experts.count,
            "all experts": shape.experts.count * shape.experts.ffn_hidden,
        }
    widths = {name: width / tp for name, width in cut.items()} | whole
    return {name: int(shape.hidden * width) for name, width in widths.items()}


RULE = Rule(
    code="DSF801",
    name="disk-alignment",
    severity=Severity.ERROR,
    summary="the optimizer goes to a disk where gradients of its parameters begin at whole blocks of it",
    why="DeepSpeed lays the shards of a rank's gradients one behind another and reads each from its file to "
    "its place. Where that is no multiple of 512 bytes, direct I/O refuses, and DeepSpeed does not look: the "
    "update takes another gradient, and the loss of the next step is wrong without a word.",
    check=_check,
    plannable=True,
)
