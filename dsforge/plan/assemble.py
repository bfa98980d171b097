"""Puts resolved values together into the Plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

from dsforge import __version__
from dsforge.base.errors import Finding
from dsforge.catalog.engines.capabilities import capabilities
from dsforge.catalog.hf.training import training_config
from dsforge.catalog.tables import Hardware
from dsforge.cost.states import nominal
from dsforge.layout.hf_config import config_of
from dsforge.layout.shape import Shape
from dsforge.layout.stages import stage_components
from dsforge.plan.auto import Resolved, states_off_the_gpu
from dsforge.plan.environment import derive_environment
from dsforge.plan.job_types import Kubernetes, Pbs, Slurm
from dsforge.plan.launcher import choose_launcher
from dsforge.plan.model import model_of
from dsforge.plan.program import asks_for, program, program_of, values_of
from dsforge.plan.types import (
    Batch,
    Checkpoint,
    Data,
    DataSet,
    Launch,
    Layout,
    Nominal,
    Offload,
    Optimizer,
    Parameters,
    Plan,
    Program,
    Stage,
    Train,
)
from dsforge.recipe.interface import AUTO, is_found_on_hosts
from dsforge.recipe.job_sections import KubernetesSection, PbsSection, SlurmSection
from dsforge.recipe.settled import SettledRecipe

_WHY_OFF = {"output_router_logits": "`train.balance_loss` is what keeps experts evenly used"}
BUILTIN_VOCAB_LIMIT = 4096
"""Largest tokenizer trained on the built-in corpus: a few megabytes of text fill no more."""


def assemble(
    recipe: SettledRecipe,
    shape: Shape,
    hardware: Hardware,
    resolved: Resolved,
    findings: list[Finding],
    model_config: Mapping[str, Any] | None = None,
) -> Plan:
    """Return the Plan of a recipe that no rule refuses, whose model may stand in a `config.json`."""
    assert resolved.batch is not None
    assert resolved.steps is not None
    assert resolved.padded_vocab is not None
    hf_config = None
    if capabilities(recipe.trainer).hugging_face:
        given = model_config or config_of(shape)
        hf_config = training_config(given, shape.name)
        off = (key for key, value in hf_config.items() if value == 0.0 and given.get(key, value) != value)
        for key in sorted(off):
            resolved.decide(
                f"model.{key}", hf_config[key], _WHY_OFF.get(key, "the trainer applies no dropout")
            )
    values = values_of(recipe, shape, hardware, resolved)
    section = program_of(recipe)
    external = program(section, values) if section else None
    return Plan(
        dsforge_version=__version__,
        name=recipe.name,
        trainer=recipe.trainer,
        accelerator="cpu" if hardware.accelerator == "cpu" else "cuda",
        gpu=hardware.name,
        model=model_of(shape, resolved.padded_vocab, hf_config),
        parameters=Parameters(
            total=shape.parameters(), active=shape.active_parameters(), by_component=shape.components()
        ),
        layout=_layout(recipe, shape, resolved),
        offload=Offload(**recipe.offload.model_dump()),
        batch=Batch(
            global_size=recipe.batch.global_size,
            micro=resolved.batch.micro,
            accumulation_steps=resolved.batch.accumulation_steps,
            seq_len=recipe.batch.seq_len,
        ),
        train=Train.model_validate(
            {
                **recipe.train.model_dump(include=set(Train.model_fields)),
                "steps": resolved.steps,
                "eval_samples": resolved.eval_samples,
            }
        ),
        optimizer=Optimizer(**recipe.optimizer.model_dump()),
        data=_data(recipe, shape, external),
        checkpoint=Checkpoint(**recipe.checkpoint.model_dump()),
        launch=_launch(recipe, hardware, resolved, values),
        external=external,
        sinks=tuple(name for name, wanted in recipe.monitor if wanted),
        hostfile=recipe.cluster.hostfile,
        include=recipe.cluster.include,
        exclude=recipe.cluster.exclude,
        spares=recipe.cluster.spares,
        nominal=_nominal(recipe, shape),
        decisions=tuple(resolved.decisions),
        findings=tuple(finding.as_dict() for finding in findings),
    )


def _layout(recipe: SettledRecipe, shape: Shape, resolved: Resolved) -> Layout:
    parallel = recipe.parallel
    assert resolved.dp is not None
    assert resolved.zero is not None
    off, precision = states_off_the_gpu(recipe, resolved.zero), recipe.train.precision
    stages = []
    for stage, shares in zip(resolved.stages, resolved.shares_of_stage, strict=True):
        components = stage_components(shape, stage, shape.vocab)
        stages.append(
            Stage(
                stage=stage.stage,
                first_layer=stage.first,
                layers=stage.count,
                has_embedding=stage.has_embedding,
                has_head=stage.has_head,
                parameters=sum(components.values()),
                parameters_by_component=components,
                state_bytes_per_rank=shares.states(precision, resolved.zero, off),
                fp32_gradient_sum_bytes_per_rank=shares.fp32_sums(precision, resolved.zero, off),
                further_blocks=stage.starts[1:],
            )
        )
    return Layout(
        tp=parallel.tp,
        pp=parallel.pp,
        dp=resolved.dp,
        vp=parallel.vp,
        cp=parallel.cp,
        ep=parallel.ep,
        world_size=parallel.tp * parallel.pp * parallel.cp * resolved.dp,
        nodes=recipe.cluster.nodes,
        gpus_per_node=recipe.cluster.gpus_per_node,
        zero=resolved.zero,
        schedule=parallel.schedule,
        partition=parallel.partition,
        partition_weights_sha256=shape.times.sha256 if shape.times else None,
        sequence_parallel=parallel.sequence_parallel,
        engine="pipeline" if parallel.pp > 1 else "module",
        stages=tuple(stages),
    )


def _data(recipe: SettledRecipe, shape: Shape, external: Program | None) -> Data:
    if recipe.data is None:
        asked = external is None or asks_for(external, "corpus")
        return Data(
            train=(),
            valid=(),
            builtin_vocab=min(shape.vocab, BUILTIN_VOCAB_LIMIT) if asked else None,
            tokenizer=None,
            workers=2,
        )
    return Data(
        train=_blend(recipe.data.train),
        valid=_blend(recipe.data.valid or ()),
        builtin_vocab=None,
        tokenizer=recipe.data.tokenizer,
        workers=recipe.data.workers,
    )


def _blend(sets: Iterable[tuple[float, str]]) -> tuple[DataSet, ...]:
    return tuple(DataSet(weight=weight, prefix=prefix) for weight, prefix in sets)


def _launch(recipe: SettledRecipe, hardware: Hardware, resolved: Resolved, values: dict[str, Any]) -> Launch:
    launch = recipe.launch
    derived = derive_environment(recipe, hardware, values)
    for name, (value, why) in derived.items():
        resolved.decide(f"launch.env.{name}", value, why)
    launcher, reason = choose_launcher(recipe)
    if reason is not None:
        resolved.decide("launch.launcher", launcher, reason)
    return Launch(
        launcher=launcher,
        slurm=_slurm(launch.slurm) if launcher == "slurm" else None,
        kubernetes=_kubernetes(launch.kubernetes) if launcher == "kubernetes" else None,
        pbs=_pbs(launch.pbs) if launcher == "pbs" else None,
        rendezvous=launch.rendezvous,
        interface=_interface(recipe, hardware, resolved),
        env={**{name: value for name, (value, _) in derived.items()}, **launch.env},
        env_from=launch.env_from,
        restarts=launch.restarts,
        restart_window_seconds=launch.restart_window,
        restart_backoff_seconds=launch.restart_backoff,
        shrink=launch.shrink,
        watchdog_seconds=launch.watchdog,
        rendezvous_timeout_seconds=launch.rendezvous_timeout,
        collective_timeout_seconds=launch.collective_timeout,
        stop_timeout_seconds=launch.stop_timeout,
    )


def _interface(recipe: SettledRecipe, hardware: Hardware, resolved: Resolved) -> str | None:
    """Return what hosts look for their own interface by; one that is named is among the variables."""
    choice, several = recipe.cluster.interface, recipe.cluster.nodes > 1
    if choice is None or not is_found_on_hosts(choice) or not (several or choice != AUTO):
        return None
    what = "the interface on the way to the first host" if choice == AUTO else f"its interface in {choice}"
    names = "GLOO_SOCKET_IFNAME" + (", NCCL_SOCKET_IFNAME" if hardware.accelerator == "cuda" else "")
    resolved.decide(
        "launch.interface", choice, f"each host finds {what} and sets {names}, unless they are set"
    )
    return choice


def _slurm(section: SlurmSection) -> Slurm:
    return Slurm(
        time_seconds=ceil(section.time),
        notice_seconds=ceil(section.notice),
        **section.model_dump(exclude={"time", "notice"}),
    )


def _kubernetes(section: KubernetesSection) -> Kubernetes:
    # Without an image, which a rule asks for, numbers of a plan still stand.
    return Kubernetes(image=section.image or "", **section.model_dump(exclude={"image"}))


def _pbs(section: PbsSection) -> Pbs:
    return Pbs(
        time_seconds=ceil(section.time),
        notice_seconds=ceil(section.notice),
        **section.model_dump(exclude={"time", "notice"}),
    )


def _nominal(recipe: SettledRecipe, shape: Shape) -> Nominal:
    named = shape.nominal_parameters
    states = nominal(
        float(named or shape.parameters()), recipe.train.precision, recipe.parallel.tp, recipe.parallel.pp
    )
    return Nominal(
        parameters=states.parameters,
        parameters_source=f"the size in the name {shape.name}" if named else "the exact count",
        bytes_per_parameter=states.bytes_per_parameter,
        bytes_formula=states.formula,
        model_state_bytes=states.model_state_bytes,
        model_parallel_ranks=states.model_parallel_ranks,
        bytes_per_gpu=states.bytes_per_gpu,
    )
