"""The `forge` trainer: megatron-core's tensor-parallel layers trained by the DeepSpeed engine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from dsforge.train import checkpoint, cpu_support, fused, initial, quiet, resume, world
from dsforge.train.batches import Batches, micro_batches, no_batches, read_ahead, to_device
from dsforge.train.context import RankContext
from dsforge.train.dump import dump
from dsforge.train.finite import check_step, check_weights
from dsforge.train.fits import DataFacts, data_facts
from dsforge.train.parameters import model_parameters
from dsforge.train.recorder import Recorder
from dsforge.train.samples import Samples, training_samples
from dsforge.train.schedule import learning_rate
from dsforge.train.validation import Validation

if TYPE_CHECKING:
    from dsforge.train.engine import Engine


def train(context: RankContext) -> None:
    """Train the plan on this rank; DsforgeError for what the user can mend."""
    plan = context.plan
    world.check_size(context)
    device = cpu_support.choose_device(plan.accelerator, context.local_rank)
    where = world.coordinates(context.rank, plan.layout)
    sees_data = where.stage in (0, plan.layout.pp - 1)
    corpus = training_samples(plan, context.sources) if sees_data else None
    validation = Validation(context, where.replica, device, sees_data=sees_data)
    quiet.filter_warnings()

    # The engines look at the accelerator and at the process group when they are imported.
    import deepspeed

    cpu_support.import_layers(device)
    cpu_support.skip_shared_memory_build(device)
    world.join(context, device)
    recorder = Recorder(context.attempt, plan, context.rank, device)
    deepspeed.init_distributed(dist_backend=torch.distributed.get_backend(), verbose=False)
    groups = world.make_groups(plan.layout)
    seats = world.gather_seats(context, groups, device)
    world.check_seats(seats, plan)
    recorder.event("joined", f"{len(seats)} ranks joined", hosts=sorted({seat.host for seat in seats}))

    engine = build(context, groups, device)
    parts = fused.found(device, plan.train.attention_dropout) | {"optimizer": engine.optimizer_name}
    recorder.event("built", "model and optimizer are ready", fused=parts)

    data = facts_of(context, corpus)
    with resume.claimed(context):
        first_step = go_on(context, engine, recorder, data)
        batches = to_device(load(context, corpus, where, first_step), device)
        run(context, engine, recorder, batches, first_step, data, validation)
    if context.dump_dir is not None:
        specs = {spec.name: spec for spec in model_parameters(plan.model)}
        dump(engine.parameters, specs, where, context.dump_dir)
    recorder.event("finished", f"{plan.train.steps} steps done")
    torch.distributed.destroy_process_group()


def build(context: RankContext, groups: world.Groups, device: torch.device) -> Engine:
    """Return the engine with this rank's part of the model, its weights as every layout starts them."""
    from dsforge.train.engine import Engine
    from dsforge.train.loss import token_loss
    from dsforge.train.model import build_module, global_parameters

    plan = context.plan
    model, tp, shard = plan.model, plan.layout.tp, groups.tensor.rank()
    specs = {spec.name: spec for spec in model_parameters(model)}
    loss = token_loss(model.vocab, model.padded_vocab, tp, shard)
    with quiet.no_chatter():
        module = build_module(plan, groups, loss)
    parameters = global_parameters(module, specs)
    initial.fill(parameters, specs, plan, shard)
    return Engine(module, parameters, plan, ds_config=context.ds_config, groups=groups, device=device)


def facts_of(context: RankContext, corpus: Samples | None) -> DataFacts:
    """Return what identifies the data of this run: rank 0 reads it for all."""

    def read() -> DataFacts:
        assert corpus is not None, "rank 0 is of the first stage"
        return data_facts(context.plan, corpus.tokens, corpus.fingerprint())

    return world.from_rank_0(context.rank, read)


def go_on(context: RankContext, engine: Engine, recorder: Recorder, data: DataFacts) -> int:
    """Load the checkpoint that this attempt goes on from and return the steps that it has done, else 0."""
    choice = resume.agree(context, data)
    if choice is None:
        return 0
    folder, step = choice
    checkpoint.restore(engine, folder)
    recorder.event("resumed", f"resumed from the checkpoint of step {step}", step=step, folder=str(folder))
    return step


def load(context: RankContext, corpus: Samples | None, where: world.Coordinates, first_step: int) -> Batches:
    """Return this rank's micro-batches from a step on; only the first and the last stage look at the data."""
    if corpus is None:
        return no_batches()
    plan = context.plan
    batches = micro_batches(corpus, plan, where.replica, range(first_step, plan.train.steps))
    return read_ahead(batches, plan.data.workers)


def run(
    context: RankContext,
    engine: Engine,
    recorder: Recorder,
    batches: Batches,
    first_step: int,
    data: DataFacts,
    validation: Validation,
) -> None:
    """Take the steps that are left, saving as often as the plan says and at the end."""
    plan = context.plan
    every = plan.checkpoint.every_steps
    left = plan.train.steps - first_step
    recorder.event("training", f"{left} of {plan.train.steps} steps to do", first_step=first_step + 1)
    for step in range(first_step + 1, plan.train.steps + 1):
        began = time.perf_counter()
        rate = learning_rate(step - 1, plan.train.steps, plan.optimizer)
        result = engine.step(batches, rate)
        check_step(result, engine.own_loss, step, context, recorder)
        recorder.metrics(step, result, rate, time.perf_counter() - began)
        validation.follow(step, engine, recorder)
        if step == plan.train.steps or (every and step % every == 0):
            check_weights(engine.parameters, step, context, recorder)
            folder = checkpoint.save(engine, context, step, data)
            recorder.event("checkpoint", f"checkpoint of step {step} written", step=step, folder=str(folder))
