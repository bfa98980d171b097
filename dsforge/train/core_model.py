"""A rank's chunks of a model for megatron-core's schedules: one a virtual stage."""

from __future__ import annotations

import torch
from megatron.core.enums import ModelType
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import nn

from dsforge.plan.types import Plan, Stage
from dsforge.train.experts import expert_options
from dsforge.train.layers import (
    FinalNorm,
    Head,
    Layer,
    PositionEmbedding,
    WordEmbedding,
    entrance,
    transformer_config,
)
from dsforge.train.precision import DTYPES
from dsforge.train.recompute import block_size, run
from dsforge.train.world import Groups


class Chunk(MegatronModule):
    """Some layers in a row, with the embedding before or the head behind them where those belong."""

    model_type = ModelType.encoder_or_decoder

    def __init__(
        self,
        plan: Plan,
        of_schedule: TransformerConfig,
        config: TransformerConfig,
        groups: Groups,
        layers: range,
        number: int,
    ) -> None:
        super().__init__(of_schedule)
        model, train = plan.model, plan.train
        self.vp_stage = number if plan.layout.vp > 1 else None
        self.pre_process, self.post_process = layers.start == 0, layers.stop == model.layers
        self.share_embeddings_and_output_weights = model.tied
        self.block = block_size(train)
        self.word = self.position = self.final_norm = self.head = None
        learned = model.position == "learned"
        before_layers = entrance(train, config, groups)
        if self.pre_process or (self.post_process and model.tied):
            self.word = WordEmbedding(model, config, groups.tensor, None if learned else before_layers)
            weight = self.word.table.weight
            # The first stage counts a tied weight in the norm; both it and the last add up its gradient.
            weight.shared, weight.shared_embedding = not self.pre_process, model.tied
        if self.pre_process and learned:
            self.position = PositionEmbedding(model, before_layers)
        self.layers = nn.ModuleList(Layer(model, config, groups, train, index=index) for index in layers)
        if self.post_process:
            self.final_norm = FinalNorm(model, config)
            self.head = None if model.tied else Head(model, config, groups.tensor)
        self._received: torch.Tensor | None = None

    def set_input_tensor(self, received: list[torch.Tensor | None]) -> None:
        """Take the hidden states of the stage before, None on the first."""
        self._received = received[0]

    def shared_embedding_or_output_weight(self) -> nn.Parameter:
        """Return the table whose gradient first and last stage add up; asked for where it is tied."""
        assert self.word is not None
        return self.word.table.weight

    def forward(self, tokens: torch.Tensor | None, samples: torch.Tensor) -> torch.Tensor:
        """Return logits, or hidden states [s, b, h], of tokens [b, s] or of what was received."""
        if self.pre_process:
            flow = self.word((tokens, samples))
            if self.position is not None:
                flow = self.position(flow)
        else:
            assert self._received is not None, "the schedule hands over what the stage before has sent"
            flow = self._received, samples
        flow = run(self.layers, flow, self.block)
        if not self.post_process:
            return flow[0]
        hidden = self.final_norm(flow)
        return self.word.logits(hidden) if self.head is None else self.head(hidden)


def make_chunks(plan: Plan, groups: Groups, stage: Stage) -> list[Chunk]:
    """Return the chunks of a stage, in the order that a micro-batch passes them."""
    layout = plan.layout
    precision = DTYPES[plan.train.precision]
    ours = {
        "sequence_parallel": layout.sequence_parallel,
        "context_parallel_size": layout.cp,
        "params_dtype": precision,
        "bf16": precision is torch.bfloat16,
        "fp16": precision is torch.float16,
        **expert_options(plan),
    }
    # Layers are built one by one; told of stages they would count themselves anew.
    of_layers = transformer_config(plan.model, layout.tp, **ours)
    of_schedule = transformer_config(
        plan.model,
        layout.tp,
        pipeline_model_parallel_size=layout.pp,
        virtual_pipeline_model_parallel_size=layout.vp if layout.vp > 1 else None,
        pipeline_dtype=precision,
        # In one batch, what two stages send each other forwards and backwards would be taken for one another.
        overlap_p2p_comm=layout.vp > 1,
        batch_p2p_comm=layout.vp == 1,
        **ours,
    )
    size = stage.layers // layout.vp
    starts = (stage.first_layer, *stage.further_blocks)
    return [
        Chunk(plan, of_schedule, of_layers, groups, range(start, start + size), number)
        for number, start in enumerate(starts)
    ]
