"""The `forge` trainer: megatron-core's tensor-parallel layers trained by the DeepSpeed engine."""

from __future__ import annotations

import logging
import time

import torch

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.train import cpu_support, initial, world
from dsforge.train.batches import micro_batches, read_ahead, to_device
from dsforge.train.context import RankContext
from dsforge.train.parameters import model_parameters
from dsforge.train.reader import IndexedCorpus
from dsforge.train.recorder import Recorder
from dsforge.train.schedule import learning_rate

log = logging.getLogger(__name__)


def train(context: RankContext) -> None:
    """Train the plan on this rank; DsforgeError for what the user can mend."""
    plan = context.plan
    world.check_size(context)
    device = cpu_support.choose_accelerator(plan.accelerator)
    corpus = open_corpus(context)

    # The engines look at the accelerator and at the process group when they are imported.
    import deepspeed

    from dsforge.train.engine import Engine
    from dsforge.train.loss import token_loss
    from dsforge.train.model import build, global_parameters

    cpu_support.skip_shared_memory_build(device)
    world.join(context, device)
    recorder = Recorder(context.attempt, plan, context.rank, device)
    deepspeed.init_distributed(dist_backend=torch.distributed.get_backend(), verbose=False)
    groups = world.make_groups(plan.layout)
    seats = world.gather_seats(context, groups, device)
    world.check_seats(seats, plan)
    recorder.event("joined", f"{len(seats)} ranks joined", hosts=sorted({seat.host for seat in seats}))

    shard = groups.tensor.rank()
    specs = {spec.name: spec for spec in model_parameters(plan.model)}
    loss = token_loss(plan.model.vocab, plan.model.padded_vocab, plan.layout.tp, shard)
    module = build(plan, groups, loss)
    parameters = global_parameters(module, specs)
    initial.fill(parameters, specs, plan.model, plan.train.seed, plan.layout.tp, shard)
    engine = Engine(module, parameters, plan, context.ds_config, groups)
    recorder.event("built", "model and optimizer are ready", optimizer=engine.optimizer_name)

    replica = world.coordinates(context.rank, plan.layout).replica
    batches = to_device(read_ahead(micro_batches(corpus, plan, replica, 0), plan.data.workers), device)
    recorder.event("training", f"steps 1 to {plan.train.steps}")
    for step in range(plan.train.steps):
        began = time.perf_counter()
        rate = learning_rate(step, plan.train.steps, plan.optimizer)
        result = engine.step(batches, rate)
        recorder.metrics(step + 1, result, rate, time.perf_counter() - began)
    recorder.event("finished", f"{plan.train.steps} steps done")


def open_corpus(context: RankContext) -> IndexedCorpus:
    """Return the plan's data."""
    plan = context.plan
    return IndexedCorpus(context.corpus_prefix, plan.batch.seq_len, plan.train.seed, plan.model.vocab)
