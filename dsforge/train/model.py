"""Puts a model's pieces together: in stages for the pipeline engine, in one module for the other."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from torch import nn

from dsforge.plan.types import Layout, Plan
from dsforge.train.layers import (
    FinalNorm,
    Head,
    Layer,
    PositionEmbedding,
    WordEmbedding,
    entrance,
    transformer_config,
)
from dsforge.train.loss import Loss
from dsforge.train.recompute import block_size, run
from dsforge.train.world import Groups


def _tied_head(embedding: WordEmbedding, hidden: torch.Tensor) -> torch.Tensor:
    return embedding.logits(hidden)


def piece_specs(plan: Plan, groups: Groups) -> list[LayerSpec]:
    """Return how to build each piece of the model, in the order that they run."""
    model, train = plan.model, plan.train
    config = transformer_config(model, plan.layout.tp, sequence_parallel=plan.layout.sequence_parallel)
    learned = model.position == "learned"
    before_layers = entrance(train, config, groups)
    word = (model, config, groups.tensor, None if learned else before_layers)
    pieces: list[LayerSpec] = []
    if model.tied:
        pieces.append(TiedLayerSpec("embedding", WordEmbedding, *word, tied_weight_attr="table.weight"))
    else:
        pieces.append(LayerSpec(WordEmbedding, *word))
    if learned:
        pieces.append(LayerSpec(PositionEmbedding, model, before_layers))
    pieces += [LayerSpec(Layer, model, config, groups, train, index=index) for index in range(model.layers)]
    pieces.append(LayerSpec(FinalNorm, model, config))
    if model.tied:
        head = TiedLayerSpec(
            "embedding", WordEmbedding, *word, forward_fn=_tied_head, tied_weight_attr="table.weight"
        )
    else:
        head = LayerSpec(Head, model, config, groups.tensor)
    return [*pieces, head]


def stage_bounds(layout: Layout, pieces: int, before_layers: int) -> list[int]:
    """Return the first piece of every stage, and the number of pieces last.

    `before_layers` pieces stand before the first layer: the embeddings, which are on stage 0.
    """
    bounds = [0]
    bounds += [before_layers + stage.first_layer for stage in layout.stages[1:]]
    return [*bounds, pieces]


class StagedModel(PipelineModule):
    """A pipeline module whose stages and recomputed blocks are the plan's, not a guess of the engine."""

    def __init__(self, bounds: list[int], pieces: list[LayerSpec], block: int, **options: Any) -> None:
        self.bounds = bounds
        self.block = block
        super().__init__(pieces, **options)

    def _partition_layers(self, method: str = "") -> None:  # noqa: ARG002 - deepspeed's signature
        self.parts = self.bounds
        stage = self._topo.get_coord(self.global_rank).pipe
        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])

    def forward(self, value: Any) -> Any:
        """Return what this stage makes of a micro-batch or of the stage before."""
        # The engine's own blocks would start at the embedding and hold it.
        return run(self.forward_funcs, value, self.block)


class WholeModel(nn.Module):
    """All pieces on one rank of the pipeline; `forward` gives the loss of a micro-batch."""

    def __init__(self, pieces: list[LayerSpec], loss: Loss, block: int) -> None:
        super().__init__()
        tied = isinstance(pieces[-1], TiedLayerSpec)
        self.pieces = nn.ModuleList(piece.build() for piece in (pieces[:-1] if tied else pieces))
        self.tied = tied
        self.loss = loss
        self.block = block

    def forward(self, inputs: tuple[torch.Tensor, torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of tokens [b, s] with the ids [b] of their samples, and labels [b, s]."""
        value = run(self.pieces, inputs, self.block)
        if self.tied:
            value = self.pieces[0].logits(value)
        return self.loss(value, labels)


def build_module(plan: Plan, groups: Groups, loss: Loss) -> nn.Module:
    """Return this rank's part of the model for the engine that the plan names."""
    pieces, block = piece_specs(plan, groups), block_size(plan.train)
    if plan.layout.engine == "module":
        module: nn.Module = WholeModel(pieces, loss, block)
    else:
        before = 2 if plan.model.position == "learned" else 1
        bounds = stage_bounds(plan.layout, len(pieces), before)
        module = StagedModel(bounds, pieces, block, topology=groups.topology, loss_fn=loss)
    _add_up_over_shards(module, groups.tensor)
    return module


def _add_up_over_shards(module: nn.Module, group: Any) -> None:
    """Let shards add up the gradients of weights that each of them used on its rows of a sequence alone.

    At once, before the engine takes them: it may deal them out over the replicas while others are computed.
    """
    for parameter in module.parameters():
        if getattr(parameter, "sequence_parallel", False):
            parameter.register_hook(partial(_sum, group))


def _sum(group: Any, gradient: torch.Tensor) -> torch.Tensor:
    # The engine's own tensor stays as it is, and a sum of many is rounded once.
    total = gradient.to(torch.float32, copy=True)
    dist.all_reduce(total, group=group)
    return total.to(gradient.dtype)
