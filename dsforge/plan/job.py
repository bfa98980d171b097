"""A plan as the cost model's job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from dsforge.catalog.engines.capabilities import capabilities
from dsforge.catalog.tables import cluster_shapes
from dsforge.cost.calibration import calibration
from dsforge.cost.job import Experts, Job, Latent, Machine, Work
from dsforge.cost.machine import machine_of
from dsforge.layout.optimizers import moments
from dsforge.plan.types import Model, Plan

_OTHER_GPU = "a GPU with published step times: `dsforge presets list`"


class Unmeasured(str):
    """In words why a job's costs are not known; `key`: what of the recipe makes it so, `hint`: what helps."""

    __slots__ = ("hint", "key")
    key: str
    hint: str

    def __new__(cls, why: str, key: str, hint: str) -> Self:
        """Take all three."""
        made = super().__new__(cls, why)
        made.key, made.hint = key, hint
        return made


@dataclass(frozen=True, slots=True)
class Measured:
    """What a job's costs are known by: its machine, and the engine whose measured runs are like its own."""

    machine: Machine
    engine: str


def measured(
    gpu: str, gpus_per_node: int, trainer: str, precision: str, shape: str | None = None
) -> Measured | Unmeasured:
    """Return what costs are known by, or in words why there are none. `trainer`: or an external flavour.

    `shape`: a rented machine, whose network it is; else it is the one that the GPU usually comes with.
    """
    machine = machine_of(gpu, gpus_per_node)
    rented = cluster_shapes().get((shape or "").lower())
    if machine is not None and rented is not None:
        rate = rented.network_gb_s * 1e9
        machine = replace(machine, network_bytes_per_second=rate, fabric=rented.fabric)
    engine = calibration().trainers.get(trainer)
    if gpu == "cpu":
        return Unmeasured("CPU runs prove logic, not speed", "cluster.gpu", _OTHER_GPU)
    if machine is None:
        return Unmeasured(f"nobody has published what training reaches on {gpu}", "cluster.gpu", _OTHER_GPU)
    if engine is None:
        why = f"no measured runs are like those of trainer {trainer}"
        return Unmeasured(why, "trainer", "another trainer, or a layout without `auto`")
    if precision == "fp32":
        why = "the cost model knows 16-bit training"
        return Unmeasured(why, "train.precision", "`train.precision: bf16`, or a layout without `auto`")
    return Measured(machine, engine)


def work_of(model: Model, seq_len: int, *, dropout: bool, tables: int = 1) -> Work:
    """Return the work of a model's layers; `tables`: how many times a TP group holds embedding and head."""
    mixture, latent = model.experts, model.latent
    experts = None
    if mixture is not None:
        experts = Experts(
            count=mixture.count,
            chosen=mixture.active,
            width=mixture.ffn_hidden,
            shared=mixture.shared_ffn_hidden // mixture.ffn_hidden,
            dense_layers=len(mixture.dense_layers),
        )
    return Work(
        layers=model.layers,
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.kv_heads,
        head_dim=model.head_dim,
        ffn_hidden=model.ffn_hidden,
        vocab=model.padded_vocab * tables,
        seq_len=seq_len,
        gated=model.gated,
        experts=experts,
        tied=model.tied,
        bias=model.linear_bias,
        norm_bias=model.norm == "layernorm",
        positions=model.max_positions if model.position == "learned" else 0,
        dropout=dropout,
        latent=Latent(latent.q_rank or 0, latent.kv_rank, latent.nope_dim, latent.rope_dim, latent.value_dim)
        if latent
        else None,
    )


def engine_of_plan(plan: Plan) -> str:
    """Return whose measured runs and states a plan's are like: its program's flavour, else its trainer."""
    return plan.external.flavour if plan.external else plan.trainer


def job_of(plan: Plan, shape: str | None = None) -> Job | str:
    """Return a plan as the cost model's job, or in words why it has none. `shape`: a rented machine."""
    layout, train, offload = plan.layout, plan.train, plan.offload
    known = measured(plan.gpu, layout.gpus_per_node, engine_of_plan(plan), train.precision, shape)
    if isinstance(known, str):
        return known
    return Job(
        work=work_of(
            plan.model,
            plan.batch.seq_len,
            dropout=train.dropout > 0,
            tables=capabilities(plan.trainer).tables(layout.tp),
        ),
        machine=known.machine,
        engine=known.engine,
        gpus=layout.world_size,
        tp=layout.tp,
        pp=layout.pp,
        dp=layout.dp,
        micro=plan.batch.micro,
        global_batch=plan.batch.global_size,
        precision=train.precision,
        vp=layout.vp,
        cp=layout.cp,
        ep=layout.ep,
        zero=layout.zero,
        recompute=train.recompute,
        sequence_parallel=layout.sequence_parallel,
        flash_attention=train.attention_dropout == 0,
        offload=offload.optimizer != "none",
        moments=moments(plan.optimizer.type, plan.optimizer.momentum),
        offload_parameters=offload.parameters != "none",
        optimizer_on_disk=offload.optimizer == "nvme",
        parameters_on_disk=offload.parameters == "nvme",
        schedule=layout.schedule,
        recompute_every=train.recompute_every,
        first_layers=layout.stages[0].layers,
        last_layers=layout.stages[-1].layers,
        gathers_context=plan.external is None,
        expert_tp=1 if layout.ep > 1 else None,
    )
