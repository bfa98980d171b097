"""The run of every trainer of ours: meet, build, go on from a checkpoint, take the steps, save."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

import torch

from dsforge.base.exits import ExitCode
from dsforge.base.text import counted
from dsforge.catalog.engines.capabilities import capabilities
from dsforge.plan.types import Layout, Plan
from dsforge.train import checkpoint, cpu_support, disk, fused, quiet, resume, world
from dsforge.train.batches import Batches, in_order, micro_batches, no_batches, read_ahead, to_device
from dsforge.train.checks import Checks
from dsforge.train.context import RankContext
from dsforge.train.dump import dump, whole_shards
from dsforge.train.engine_protocol import Engine
from dsforge.train.finite import check_step, check_weights
from dsforge.train.fits import DataFacts, data_facts
from dsforge.train.parameters import model_parameters
from dsforge.train.recorder import Recorder, memory_peaks
from dsforge.train.samples import Samples, training_samples
from dsforge.train.schedule import learning_rate
from dsforge.train.skips import Skips
from dsforge.train.spikes import SpikeWatch, tell_spike
from dsforge.train.stop import LISTENER, StopAgreement
from dsforge.train.validation import Validation


class Trainer(Protocol):
    """What a trainer's module adds to the run."""

    def import_libraries(self, device: torch.device) -> None:
        """Import what builds the model and trains it, before any rank waits for this one.

        Engines look at the accelerator and at the process group when they are imported.
        """

    def make_groups(self, layout: Layout) -> world.Groups:
        """Return the groups of a rank; every rank must call it."""

    def build(
        self, context: RankContext, groups: world.Groups, device: torch.device, *, restored: bool
    ) -> Engine:
        """Return the engine with this rank's part of the model.

        Its weights are those that a run starts from, or any where a checkpoint is `restored` over them.
        """

    def global_tensors(self, tensors: Mapping[str, torch.Tensor], plan: Plan) -> dict[str, torch.Tensor]:
        """Return the tensors of a rank's parameters under their global names."""


def train(context: RankContext, trainer: Trainer) -> ExitCode:
    """Train the plan on this rank and return how that ended; DsforgeError for what the user can mend."""
    plan = context.plan
    world.check_size(context)
    device = cpu_support.choose_device(plan.accelerator, context.local_rank)
    where = world.coordinates(context.rank, plan.layout)
    sees_data = where.stage in (0, plan.layout.pp - 1)
    corpus = training_samples(plan, context.sources) if sees_data else None
    validation = Validation(context, where.replica, device, sees_data=sees_data)
    quiet.filter_warnings()

    trainer.import_libraries(device)
    world.join(context, device)
    recorder = Recorder(context.attempt, plan, context.rank, device)
    groups = trainer.make_groups(plan.layout)
    seats = world.gather_seats(context, groups, device)
    world.check_seats(seats, plan)
    recorder.event(
        "joined", f"{counted(len(seats), 'rank')} joined", hosts=sorted({seat.host for seat in seats})
    )

    data = facts_of(context, corpus)
    with resume.claimed(context), disk.used(context):
        choice = resume.agree(context, data)
        engine = trainer.build(context, groups, device, restored=choice is not None)
        world.limit_groups(plan.launch)
        parts = fused.found(device, plan.train.attention_dropout) | {"optimizer": engine.optimizer_name}
        recorder.event("built", "model and optimizer are ready", fused=parts)
        first_step = go_on(engine, recorder, choice, plan)
        batches = to_device(load(context, corpus, where, first_step), device)
        checks = Checks(context, engine, recorder, device, [seat.host for seat in seats])
        ended = run(context, engine, recorder, batches, first_step, data, validation, checks)
        if ended is ExitCode.OK:
            if context.dump_dir is not None:
                specs = {spec.name: spec for spec in model_parameters(plan.model)}
                tensors = trainer.global_tensors(whole_shards(engine.parameters), plan)
                dump(tensors, specs, where, plan.layout, context.dump_dir)
            swapped = {} if context.disk is None else {"disk_bytes": disk.swapped_bytes(context)}
            held = {"memory": memory_peaks(device), **swapped}
            recorder.event(
                "finished", f"{counted(plan.train.steps, 'step')} done", **held, checks=checks.told()
            )
    torch.distributed.destroy_process_group()
    return ended


def facts_of(context: RankContext, corpus: Samples | None) -> DataFacts:
    """Return what identifies the data of this run: rank 0 reads it for all."""

    def read() -> DataFacts:
        assert corpus is not None, "rank 0 is of the first stage"
        return data_facts(context.plan, corpus.tokens, corpus.fingerprint())

    return world.from_rank_0(context.rank, read)


def go_on(engine: Engine, recorder: Recorder, choice: resume.Choice | None, plan: Plan) -> int:
    """Load the checkpoint that this attempt goes on from and return the steps that it has done, else 0."""
    if choice is None:
        return 0
    folder, manifest = choice
    engine.load_files(folder)
    said = resumed_from(manifest.step, manifest.layout, plan)
    recorder.event("resumed", said, step=manifest.step, folder=str(folder))
    return manifest.step


def resumed_from(step: int, saved: Mapping[str, int], plan: Plan) -> str:
    """Return what a run that goes on from a checkpoint says: what is other, and first weights left unused.

    `saved`: the facts of the layout that the checkpoint was made with.
    """
    said = [f"resumed from the checkpoint of step {step}"]
    was, now = saved.get("dp", plan.layout.dp), plan.layout.dp
    if was != now:
        dealt = "states are dealt anew, " if capabilities(plan.trainer).cuts_parameters else ""
        said.append(f"{dealt}from {counted(was, 'replica')} to {now}")
    was, now = saved.get("zero", plan.layout.zero), plan.layout.zero
    if was != now:
        said.append(f"saved under ZeRO-{was}, going on under ZeRO-{now}")
    if plan.checkpoint.init is not None:
        said.append(f"the first weights in {plan.checkpoint.init} are not used")
    return "; ".join(said)


def load(context: RankContext, corpus: Samples | None, where: world.Coordinates, first_step: int) -> Batches:
    """Return this rank's micro-batches from a step on; only the first and the last stage look at the data."""
    if corpus is None:
        return no_batches()
    plan = context.plan
    batches = micro_batches(corpus, plan, where.replica, range(first_step, plan.train.steps))
    return in_order(read_ahead(batches, plan.data.workers), plan, where.replica, first_step)


def run(
    context: RankContext,
    engine: Engine,
    recorder: Recorder,
    batches: Batches,
    first_step: int,
    data: DataFacts,
    validation: Validation,
    checks: Checks,
) -> ExitCode:
    """Take the steps that are left, saving as often as the plan says and at the end.

    TERMINATED when a rank was told to stop before the last step: its checkpoint is then the last one made.
    """
    plan = context.plan
    stop = StopAgreement(LISTENER, plan.launch)
    skips, spikes = Skips(context, recorder), SpikeWatch()

    def before_update() -> None:
        stop.ask()
        checks.before_update()

    engine.before_update = before_update
    every = plan.checkpoint.every_steps
    left = plan.train.steps - first_step
    recorder.event("training", f"{left} of {plan.train.steps} steps to do", first_step=first_step + 1)
    if stop.asked_now():
        recorder.event("stopped", "stopped before a step was made", step=first_step)
        return ExitCode.TERMINATED
    checks.parameters(first_step, is_kept=True)
    for step in range(first_step + 1, plan.train.steps + 1):
        began = time.perf_counter()
        rate = learning_rate(step - 1, plan.train.steps, plan.optimizer)
        checks.begin(step)
        result = engine.step(batches, rate)
        check_step(result, engine.micro_losses, step, context, recorder, checks.watch)
        skips.follow(step, result)
        if (bound := spikes.follow(result.loss)) is not None:
            tell_spike(result.loss, bound, engine.micro_losses, step, context, recorder)
        recorder.metrics(step, result, rate, time.perf_counter() - began)
        validation.follow(step, engine, recorder)
        stopping = stop.agreed()
        is_last = plan.checkpoint.at_end and step == plan.train.steps
        is_kept = stopping or is_last or bool(every and step % every == 0)
        checks.parameters(step, is_kept=is_kept)
        if is_kept:
            check_weights(engine.parameters, step, context, recorder)
            folder = checkpoint.save(engine, context, step, data)
            recorder.event("checkpoint", f"checkpoint of step {step} written", step=step, folder=str(folder))
            # Who was told during the save need not wait for another step and another save.
            stopping = stopping or stop.asked_now()
        if stopping and step < plan.train.steps:
            recorder.event("stopped", f"stopped after step {step}", step=step)
            return ExitCode.TERMINATED
    if skips.count:
        recorder.event("skipped", f"{skips.count} of {left} steps skipped in all", skipped_steps=skips.count)
    return ExitCode.OK
