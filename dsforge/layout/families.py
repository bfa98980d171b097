"""What keeps a shape from being one that a trainer builds, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict

from dsforge.catalog.families import Family
from dsforge.layout.shape import Shape

_WORDS = {
    "qkv_bias": "biases of queries, keys and values",
    "output_bias": "a bias of the attention's output",
    "mlp_bias": "biases in the MLP",
    "parallel_residual": "attention and MLP side by side",
    "post_norm": "norms after the residual",
    "final_norm": "a final norm",
    "embedding_norm": "a norm on the embeddings",
    "qk_norm": "norms on queries and keys",
    "sinks": "attention sinks",
    "rope_scaling": "scaled rotary positions",
    "softcap": "soft-capped logits",
    "unit_offset_norm": "norm scales counted from 1",
    "scaled_embedding": "scaled embeddings",
    "clipped_swiglu": "a clipped SwiGLU",
}
_VALUES = {
    "norm": "{} norms",
    "activation": "activation {}",
    "position": "{} positions",
    "layer_norms": "{} norms a layer",
    "position_offset": "positions counted from {}",
    "rotary_fraction": "rotary positions on {:g} of a head",
    "window": "attention over {} tokens",
}


def differences(
    shape: Shape, plain: Iterable[Family], seq_len: int, besides: Collection[str] = ()
) -> list[str]:
    """Return what tells a shape from the nearest of some plain families; empty when it is of one of them.

    A window that no sequence of `seq_len` tokens leaves changes nothing, nor do the traits `besides`;
    `experts` among them are those that a router alone chooses from.
    """
    own = {trait: value for trait, value in asdict(shape.traits).items() if trait not in besides}
    if "window" in own and shape.traits.window is not None and shape.traits.window >= seq_len:
        own["window"] = None
    nearest = min(
        ([(k, v) for k, v in own.items() if v != getattr(family.traits, k)] for family in plain), key=len
    )
    found = [_in_words(trait, value) for trait, value in nearest]
    found.extend(_experts(shape, taken="experts" in besides))
    if shape.latent is not None:
        found.append("latent attention")
    if shape.embedding_width != shape.hidden:
        found.append(f"embeddings of width {shape.embedding_width}")
    return found


def _experts(shape: Shape, *, taken: bool) -> Iterator[str]:
    experts = shape.experts
    if experts is not None and not taken:
        yield f"{experts.count} experts"
    elif experts is not None:
        if experts.shared_ffn_hidden:
            yield "an expert that all tokens share"
        if experts.router_bias:
            yield "a bias of the router"
        if shape.traits.mlp_bias:
            yield "biases of experts"


def _in_words(trait: str, value: object) -> str:
    if trait in _VALUES:
        return _VALUES[trait].format(value)
    return _WORDS[trait] if value else f"no {_WORDS[trait].removeprefix('a ')}"
