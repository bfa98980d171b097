"""Our global names and tensors against those of Hugging Face's models. Needs torch only.

A global parameter is laid out by rows; each Hugging Face tensor holds some of its rows in its own order. The
fused `linear_qkv` is grouped by key-value head (see `parameters`) where theirs are queries, keys and values
apart or end to end; GPT-2's Conv1D weights are transposed. All experts of a layer stand in one tensor of
theirs, an entry each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from dsforge.plan.types import Model
from dsforge.train.parameters import ParameterSpec, model_parameters


@dataclass(frozen=True, slots=True)
class Part:
    """One Hugging Face tensor: its name, the rows of the global parameter it holds, None for all in order.

    `entry`: the parameter is this one of the tensor's first dimension, beside others.
    """

    name: str
    rows: torch.Tensor | None = None
    transposed: bool = False
    entry: int | None = None

    def of(self, whole: torch.Tensor) -> torch.Tensor:
        """Return what the Hugging Face tensor holds of a whole global one."""
        rows = whole if self.rows is None else whole[self.rows]
        return rows.t() if self.transposed else rows

    def put(self, whole: torch.Tensor, tensor: torch.Tensor) -> None:
        """Write what the Hugging Face tensor holds of a whole global one into it."""
        held = tensor if self.entry is None else tensor[self.entry]
        rows = held.t() if self.transposed else held
        if self.rows is None:
            whole.copy_(rows)
        else:
            whole[self.rows] = rows


def parts(model: Model) -> dict[str, tuple[Part, ...]]:
    """Return global name to the Hugging Face tensors that together hold the parameter."""
    naming = _gpt2 if model.position == "learned" else _llama_like
    return {spec.name: tuple(naming(model, spec.name)) for spec in model_parameters(model)}


def together(model: Model) -> Iterator[tuple[ParameterSpec, ...]]:
    """Yield every global parameter, with it those that stand beside it in one Hugging Face tensor."""
    named = parts(model)
    groups: dict[str, list[ParameterSpec]] = {}
    for spec in model_parameters(model):
        groups.setdefault(named[spec.name][0].name, []).append(spec)
    yield from map(tuple, groups.values())


def to_hugging_face(held: Iterable[tuple[torch.Tensor, Iterable[Part]]]) -> dict[str, torch.Tensor]:
    """Return the Hugging Face tensors of whole global ones and their parts; entries come in order."""
    tensors: dict[str, list[torch.Tensor]] = {}
    stacked: set[str] = set()
    for whole, some in held:
        for part in some:
            tensors.setdefault(part.name, []).append(part.of(whole))
            if part.entry is not None:
                stacked.add(part.name)
    return {name: torch.stack(own) if name in stacked else own[0] for name, own in tensors.items()}


def from_hugging_face(tensors: Mapping[str, torch.Tensor], model: Model) -> dict[str, torch.Tensor]:
    """Return whole global tensors of Hugging Face's."""
    named = parts(model)
    whole = {}
    for spec in model_parameters(model):
        held = named[spec.name]
        whole[spec.name] = tensors[held[0].name].new_empty(spec.shape)
        for part in held:
            part.put(whole[spec.name], tensors[part.name])
    return whole


def attention_rows(model: Model) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the rows of `linear_qkv` that are queries, keys and values, each in order of its heads."""
    groups, per_group, width = model.kv_heads, model.heads // model.kv_heads, model.head_dim
    rows = torch.arange(groups * (per_group + 2) * width).view(groups, per_group + 2, width)
    return rows[:, :per_group].flatten(), rows[:, per_group].flatten(), rows[:, per_group + 1].flatten()


_ENDS = {
    "gpt2": {
        "embedding.word": "transformer.wte",
        "embedding.position": "transformer.wpe",
        "final_norm": "transformer.ln_f",
        "head": "lm_head",
    },
    "llama": {"embedding.word": "model.embed_tokens", "final_norm": "model.norm", "head": "lm_head"},
}
_GPT2_LAYER = {
    "input_layernorm": "ln_1",
    "self_attention.linear_qkv": "attn.c_attn",
    "self_attention.linear_proj": "attn.c_proj",
    "pre_mlp_layernorm": "ln_2",
    "mlp.linear_fc1": "mlp.c_fc",
    "mlp.linear_fc2": "mlp.c_proj",
}
_LLAMA_LAYER = {
    "input_layernorm": "input_layernorm",
    "self_attention.linear_proj": "self_attn.o_proj",
    "self_attention.q_layernorm": "self_attn.q_norm",
    "self_attention.k_layernorm": "self_attn.k_norm",
    "pre_mlp_layernorm": "post_attention_layernorm",
    "mlp.linear_fc2": "mlp.down_proj",
    "mlp.router": "mlp.gate",
}
_EXPERTS = {"linear_fc1": "gate_up_proj", "linear_fc2": "down_proj"}


def _gpt2(model: Model, name: str) -> Iterator[Part]:
    where, kind = name.rsplit(".", 1)
    if where in _ENDS["gpt2"]:
        yield Part(f"{_ENDS['gpt2'][where]}.{kind}")
        return
    _, layer, inner = where.split(".", 2)
    rows = torch.cat(attention_rows(model)) if inner.endswith("linear_qkv") else None
    conv = "linear" in inner and kind == "weight"
    yield Part(f"transformer.h.{layer}.{_GPT2_LAYER[inner]}.{kind}", rows, transposed=conv)


def _llama_like(model: Model, name: str) -> Iterator[Part]:
    where, kind = name.rsplit(".", 1)
    if where in _ENDS["llama"]:
        yield Part(f"{_ENDS['llama'][where]}.{kind}")
        return
    _, layer, inner = where.split(".", 2)
    at = f"model.layers.{layer}"
    if inner == "self_attention.linear_qkv":
        for letter, rows in zip("qkv", attention_rows(model), strict=True):
            yield Part(f"{at}.self_attn.{letter}_proj.{kind}", rows)
    elif inner.startswith("mlp.experts."):
        _, _, number, matrix = inner.split(".")
        yield Part(f"{at}.mlp.experts.{_EXPERTS[matrix]}", entry=int(number))
    elif inner == "mlp.linear_fc1":
        gate, up = torch.arange(2 * model.ffn_hidden).chunk(2)
        yield Part(f"{at}.mlp.gate_proj.{kind}", gate)
        yield Part(f"{at}.mlp.up_proj.{kind}", up)
    else:
        yield Part(f"{at}.{_LLAMA_LAYER[inner]}.{kind}")
