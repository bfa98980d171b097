"""The pieces of a model, in the order that they run: embeddings, layers, final norm, head.

Each is built of megatron-core's tensor-parallel layers and knows its parameters' global names. Hidden
states are [sequence, batch, hidden]; tokens [batch, sequence]; logits [sequence, batch, vocabulary / TP].
The ids of the samples travel with the hidden states, from stage to stage too: dropout asks for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.tensor_parallel.layers import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabParallelEmbedding,
)
from megatron.core.tensor_parallel.mappings import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
)
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules
from torch import nn
from torch.nn import functional

from dsforge.plan.types import Model, Train
from dsforge.train.attention import CausalAttention, Running
from dsforge.train.dropout import Dropout, Site
from dsforge.train.experts import expert_mlp, global_name, has_experts
from dsforge.train.norms import HeadNorm, Norm
from dsforge.train.parallel_layer import ParallelLayer
from dsforge.train.rows import Rows
from dsforge.train.world import Groups

Flow = tuple[torch.Tensor, torch.Tensor]
"""Hidden states [s, b, h] and the ids [b] of the samples that they are of."""


def _leave(weight: torch.Tensor) -> torch.Tensor:
    return weight


_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": partial(functional.gelu, approximate="tanh"),
    "gelu-erf": functional.gelu,
    "relu": functional.relu,
    "swiglu": functional.silu,
    "geglu": partial(functional.gelu, approximate="tanh"),
}
"""By a model's word: what the MLP, or its gate, applies."""


def transformer_config(model: Model, tp: int, **options: Any) -> TransformerConfig:
    """Return megatron-core's view of a model; its own initialisation is a no-op, see `initial`.

    `options`: what a trainer whose schedules and optimizer are megatron-core's, too, adds to it.
    """
    return TransformerConfig(
        num_layers=model.layers,
        hidden_size=model.hidden,
        num_attention_heads=model.heads,
        num_query_groups=model.kv_heads,
        kv_channels=model.head_dim,
        ffn_hidden_size=model.ffn_hidden,
        tensor_model_parallel_size=tp,
        use_cpu_initialization=True,
        # False would leave the weights without the attributes that gradient norms are counted by.
        perform_initialization=True,
        init_method=_leave,
        output_layer_init_method=_leave,
        # Its dropout asks a generator, whose masks would differ between layouts: see `dropout`.
        hidden_dropout=0.0,
        attention_dropout=0.0,
        normalization="RMSNorm" if model.norm == "rmsnorm" else "LayerNorm",
        layernorm_epsilon=model.norm_eps,
        add_bias_linear=model.linear_bias,
        add_qkv_bias=model.qkv_bias,
        gated_linear_unit=model.gated,
        activation_func=_ACTIVATIONS[model.activation],
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        **options,
    )


def _dropout_add(dropout: Dropout, running: Running, rows: Rows) -> Callable[..., Any]:
    """Return what megatron-core asks for, with the mode and whether to fuse, for each use."""

    def add(
        training: bool,
        with_bias: tuple[torch.Tensor, torch.Tensor | None],
        residual: torch.Tensor,
        _rate: float,
    ) -> torch.Tensor:
        value, bias = with_bias
        value = value if bias is None else value + bias
        assert running.samples is not None
        mixed = dropout.hidden(value, running.samples, training=training, rows=rows)
        return residual + mixed

    def for_mode(training: bool, _fused: bool) -> Callable[..., torch.Tensor]:
        return partial(add, training)

    return for_mode


def _layer_spec(
    model: Model, train: Train, groups: Groups, index: int, running: Running, rows: Rows
) -> TransformerLayerSubmodules:
    norm = ModuleSpec(module=Norm, params={"unit_offset": model.unit_offset_norm})
    of_heads = ModuleSpec(module=HeadNorm, params={"group": groups.tensor}) if model.qk_norm else IdentityOp
    attention = Dropout.at(train.attention_dropout, train.seed, Site.ATTENTION, index)
    after_attention = Dropout.at(train.dropout, train.seed, Site.AFTER_ATTENTION, index)
    after_mlp = Dropout.at(train.dropout, train.seed, Site.AFTER_MLP, index)
    selective = train.recompute == "selective"
    return TransformerLayerSubmodules(
        input_layernorm=norm,
        self_attention=ModuleSpec(
            module=SelfAttention,
            params={"attn_mask_type": AttnMaskType.causal},
            submodules=SelfAttentionSubmodules(
                linear_qkv=ColumnParallelLinear,
                core_attention=partial(
                    CausalAttention,
                    window=model.window_of(index),
                    dropout=attention,
                    running=running,
                    rows=rows,
                    recompute=selective,
                ),
                linear_proj=RowParallelLinear,
                q_layernorm=of_heads,
                k_layernorm=of_heads,
            ),
        ),
        self_attn_bda=_dropout_add(after_attention, running, rows),
        pre_mlp_layernorm=norm,
        mlp=expert_mlp() if has_experts(model, index) else _dense_mlp(),
        mlp_bda=_dropout_add(after_mlp, running, rows),
    )


def _dense_mlp() -> ModuleSpec:
    linear = MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear)
    return ModuleSpec(module=MLP, submodules=linear)


@dataclass(frozen=True, slots=True)
class Entrance:
    """What happens to embedded tokens before the first layer gets them."""

    dropout: Dropout
    rows: Rows
    shards: Any
    """The TP group, which may share out the rows of a part."""

    def __call__(self, hidden: torch.Tensor, samples: torch.Tensor, *, training: bool) -> Flow:
        """Return this shard's hidden states of a part's embedded tokens [s, b, h], and the ids."""
        if self.rows.shards > 1:
            hidden = scatter_to_sequence_parallel_region(hidden, group=self.shards)
        return self.dropout.hidden(hidden, samples, training=training, rows=self.rows), samples


def rows_of(config: TransformerConfig, groups: Groups) -> Rows:
    """Return which rows of sequences this rank's layers work on."""
    parts, shards = groups.context, groups.tensor
    place = (shards.size(), shards.rank()) if config.sequence_parallel else (1, 0)
    return Rows(parts.size(), parts.rank(), *place)


def entrance(train: Train, config: TransformerConfig, groups: Groups) -> Entrance:
    """Return what stands behind a model's last embedding."""
    dropout = Dropout.at(train.dropout, train.seed, Site.EMBEDDING)
    return Entrance(dropout, rows_of(config, groups), groups.tensor)


class WordEmbedding(nn.Module):
    """The vocabulary-parallel table, and the head too where the weights are tied.

    `entrance`: None where the positions are learned and follow.
    """

    def __init__(
        self, model: Model, config: TransformerConfig, group: Any, entrance: Entrance | None
    ) -> None:
        super().__init__()
        self.entrance = entrance
        self.scale = math.sqrt(model.hidden) if model.scaled_embedding else None
        self.table = WordTable(
            model.padded_vocab, model.hidden, init_method=_leave, config=config, tp_group=group
        )

    def forward(self, inputs: tuple[torch.Tensor, torch.Tensor]) -> Flow:
        """Return hidden states [s, b, h] of tokens [b, s] and the ids [b] of their samples, and the ids."""
        tokens, samples = inputs
        hidden = self.table(tokens).transpose(0, 1).contiguous()
        if self.scale is not None:
            hidden = hidden * torch.tensor(self.scale, dtype=hidden.dtype)
        if self.entrance is None:
            return hidden, samples
        return self.entrance(hidden, samples, training=self.training)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return this shard's logits [s, b, padded vocabulary / TP] of hidden states [s, b, h]."""
        return self.table(hidden, as_head=True)

    def global_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield (global name, parameter)."""
        yield "embedding.word.weight", self.table.weight


class WordTable(VocabParallelEmbedding):
    """Both uses of the table go through `forward`: there ZeRO-3 gathers the weight."""

    def __init__(self, *size: int, config: TransformerConfig, **options: Any) -> None:
        super().__init__(*size, config=config, **options)
        self.sequence_parallel = config.sequence_parallel

    def forward(self, value: torch.Tensor, as_head: bool = False) -> torch.Tensor:
        """Return rows of token ids, or the product of hidden states with every row."""
        if not as_head:
            return super().forward(value)
        if self.sequence_parallel:
            whole = gather_from_sequence_parallel_region(value, group=self.tp_group)
        else:
            whole = copy_to_tensor_model_parallel_region(value, self.tp_group)
        return functional.linear(whole, self.weight)


class PositionEmbedding(nn.Module):
    """Learned positions, added to the word embedding; every shard holds them whole."""

    def __init__(self, model: Model, entrance: Entrance) -> None:
        super().__init__()
        self.entrance = entrance
        self.table = nn.Embedding(model.max_positions, model.hidden)

    def forward(self, flow: Flow) -> Flow:
        """Return hidden states of a part's rows with their positions added."""
        hidden, samples = flow
        positions = self.entrance.rows.of_part(hidden.shape[0], hidden.device)
        hidden = hidden + self.table(positions).unsqueeze(1)
        return self.entrance(hidden, samples, training=self.training)

    def global_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield (global name, parameter)."""
        yield "embedding.position.weight", self.table.weight


@cache
def rotary_angles(rows: Rows, count: int, width: int, theta: float, device: torch.device) -> torch.Tensor:
    """Return the rotary angles [s, 1, 1, width] of a part's `count` rows in fp32 (Su et al. 2021, eq. 15).

    A head's channels from `width` on stay as they are.
    """
    half = torch.arange(0, width, 2, dtype=torch.float32, device=device) / width
    turns = torch.outer(rows.of_part(count, device).float(), 1.0 / theta**half)
    return torch.cat((turns, turns), dim=-1)[:, None, None, :]


class Layer(nn.Module):
    """One transformer layer, counted from 0."""

    def __init__(
        self, model: Model, config: TransformerConfig, groups: Groups, train: Train, *, index: int
    ) -> None:
        super().__init__()
        self.index = index
        self.running = Running()
        self.theta = model.rope_theta if model.position == "rope" else None
        self.rotary_dim = model.rotary_dim
        self.rows = rows_of(config, groups)
        kind = ParallelLayer if model.parallel_residual else TransformerLayer
        self.body = kind(
            config,
            _layer_spec(model, train, groups, index, self.running, self.rows),
            layer_number=index + 1,
            # Told of stages, layers that are built one by one would count themselves anew.
            pg_collection=ProcessGroupCollection(
                tp=groups.tensor, pp=None, cp=groups.context, **groups.experts
            ),
        )

    def forward(self, flow: Flow) -> Flow:
        """Return hidden states after this layer."""
        hidden, self.running.samples = flow
        angles = None
        if self.theta is not None:
            count = self.rows.shards * hidden.shape[0]
            angles = rotary_angles(self.rows, count, self.rotary_dim, self.theta, hidden.device)
        return self.body(hidden, attention_mask=None, rotary_pos_emb=angles)[0], self.running.samples

    def global_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield (global name, parameter)."""
        for name, parameter in self.body.named_parameters():
            yield f"layers.{self.index}.{global_name(name, self.body.mlp)}", parameter


class FinalNorm(nn.Module):
    """The norm before the head."""

    def __init__(self, model: Model, config: TransformerConfig) -> None:
        super().__init__()
        self.norm = Norm(config, model.hidden, model.norm_eps, unit_offset=model.unit_offset_norm)

    def forward(self, flow: Flow) -> torch.Tensor:
        """Return normed hidden states [s, b, h]; the head asks for no ids."""
        return self.norm(flow[0])

    def global_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield (global name, parameter)."""
        for name, parameter in self.norm.named_parameters():
            yield f"final_norm.{name}", parameter


class Head(nn.Module):
    """An output projection of its own, for models that do not tie it to the embedding."""

    def __init__(self, model: Model, config: TransformerConfig, group: Any) -> None:
        super().__init__()
        self.projection = ColumnParallelLinear(
            model.hidden,
            model.padded_vocab,
            config=config,
            init_method=_leave,
            bias=False,
            gather_output=False,
            tp_group=group,
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return this shard's logits [s, b, padded vocabulary / TP]."""
        return self.projection(hidden)[0]

    def global_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield (global name, parameter)."""
        yield "head.weight", self.projection.weight
