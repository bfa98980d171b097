"""The pieces of a model, in the order that they run: embeddings, layers, final norm, head.

Each is built of megatron-core's tensor-parallel layers and knows its parameters' global names. Hidden
states are [sequence, batch, hidden]; tokens [batch, sequence]; logits [sequence, batch, vocabulary / TP].
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.tensor_parallel.layers import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabParallelEmbedding,
)
from megatron.core.tensor_parallel.mappings import copy_to_tensor_model_parallel_region
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from dsforge.plan.types import Model
from dsforge.train.world import Groups


def _leave(weight: torch.Tensor) -> torch.Tensor:
    return weight


def transformer_config(model: Model, tp: int) -> TransformerConfig:
    """Return megatron-core's view of a model; its own initialisation is a no-op, see `initial`."""
    swiglu = model.activation == "swiglu"
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
        hidden_dropout=0.0,
        attention_dropout=0.0,
        normalization="RMSNorm" if model.norm == "rmsnorm" else "LayerNorm",
        layernorm_epsilon=model.norm_eps,
        add_bias_linear=model.linear_bias,
        gated_linear_unit=swiglu,
        activation_func=functional.silu if swiglu else partial(functional.gelu, approximate="tanh"),
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
    )


class CausalAttention(nn.Module):
    """Attention over one shard's heads by PyTorch's own kernels: FlashAttention where it has one."""

    def __init__(self, config: TransformerConfig, **_placement: Any) -> None:
        super().__init__()
        self.grouped = config.num_query_groups != config.num_attention_heads

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_mask: Any, **_options: Any
    ) -> torch.Tensor:
        """Return [s, b, heads x head_dim] of query, key, value [s, b, heads, head_dim]."""
        heads_first = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))
        mixed = functional.scaled_dot_product_attention(*heads_first, is_causal=True, enable_gqa=self.grouped)
        return mixed.permute(2, 0, 1, 3).flatten(2)


def _layer_spec() -> TransformerLayerSubmodules:
    return TransformerLayerSubmodules(
        input_layernorm=WrappedTorchNorm,
        self_attention=ModuleSpec(
            module=SelfAttention,
            params={"attn_mask_type": AttnMaskType.causal},
            submodules=SelfAttentionSubmodules(
                linear_qkv=ColumnParallelLinear,
                core_attention=CausalAttention,
                linear_proj=RowParallelLinear,
                q_layernorm=IdentityOp,
                k_layernorm=IdentityOp,
            ),
        ),
        self_attn_bda=get_bias_dropout_add,
        pre_mlp_layernorm=WrappedTorchNorm,
        mlp=ModuleSpec(
            module=MLP,
            submodules=MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear),
        ),
        mlp_bda=get_bias_dropout_add,
    )


class WordEmbedding(nn.Module):
    """The vocabulary-parallel table, and the head too where the weights are tied."""

    def __init__(self, model: Model, config: TransformerConfig, group: Any) -> None:
        super().__init__()
        self.table = WordTable(
            model.padded_vocab, model.hidden, init_method=_leave, config=config, tp_group=group
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return hidden states [s, b, h] of tokens [b, s]."""
        return self.table(tokens).transpose(0, 1).contiguous()

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return this shard's logits [s, b, padded vocabulary / TP] of hidden states [s, b, h]."""
        return self.table(hidden, as_head=True)

    def global_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield (global name, parameter)."""
        yield "embedding.word.weight", self.table.weight


class WordTable(VocabParallelEmbedding):
    """Both uses of the table go through `forward`: there ZeRO-3 gathers the weight."""

    def forward(self, value: torch.Tensor, as_head: bool = False) -> torch.Tensor:
        """Return rows of token ids, or the product of hidden states with every row."""
        if not as_head:
            return super().forward(value)
        return functional.linear(copy_to_tensor_model_parallel_region(value, self.tp_group), self.weight)


class PositionEmbedding(nn.Module):
    """Learned positions, added to the word embedding; every shard holds them whole."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.table = nn.Embedding(model.max_positions, model.hidden)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return hidden states [s, b, h] with the positions 0..s-1 added."""
        positions = torch.arange(hidden.shape[0], device=hidden.device)
        return hidden + self.table(positions).unsqueeze(1)

    def global_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield (global name, parameter)."""
        yield "embedding.position.weight", self.table.weight


@cache
def rotary_angles(length: int, head_dim: int, theta: float, device: torch.device) -> torch.Tensor:
    """Return the rotary angles [s, 1, 1, head_dim] in fp32 (Su et al. 2021, equation 15)."""
    half = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
    turns = torch.outer(torch.arange(length, dtype=torch.float32, device=device), 1.0 / theta**half)
    return torch.cat((turns, turns), dim=-1)[:, None, None, :]


class Layer(nn.Module):
    """One transformer layer, counted from 0, recomputed in the backward pass where the plan says so."""

    def __init__(
        self, model: Model, config: TransformerConfig, groups: Groups, *, index: int, recompute: bool
    ) -> None:
        super().__init__()
        self.index = index
        self.recompute = recompute
        self.theta = model.rope_theta if model.position == "rope" else None
        self.head_dim = model.head_dim
        self.body = TransformerLayer(
            config,
            _layer_spec(),
            layer_number=index + 1,
            pg_collection=ProcessGroupCollection(tp=groups.tensor, pp=groups.alone, cp=groups.alone),
        )

    def _run(self, hidden: torch.Tensor) -> torch.Tensor:
        angles = None
        if self.theta is not None:
            angles = rotary_angles(hidden.shape[0], self.head_dim, self.theta, hidden.device)
        return self.body(hidden, attention_mask=None, rotary_pos_emb=angles)[0]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return hidden states [s, b, h]."""
        if self.recompute and torch.is_grad_enabled():
            # The reentrant kind loses the gradient of a first input that needs none.
            return checkpoint(self._run, hidden, use_reentrant=False, preserve_rng_state=False)
        return self._run(hidden)

    def global_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield (global name, parameter)."""
        for name, parameter in self.body.named_parameters():
            yield f"layers.{self.index}.{name}", parameter


class FinalNorm(nn.Module):
    """The norm before the head."""

    def __init__(self, model: Model, config: TransformerConfig) -> None:
        super().__init__()
        self.norm = WrappedTorchNorm(config, model.hidden, eps=model.norm_eps)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return normed hidden states [s, b, h]."""
        return self.norm(hidden)

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
