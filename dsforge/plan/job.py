"""A plan as the cost model's job."""

from __future__ import annotations

from dataclasses import dataclass

from dsforge.cost.calibration import calibration
from dsforge.cost.job import Experts, Job, Latent, Machine, Work
from dsforge.cost.machine import machine_of
from dsforge.plan.types import Model, Plan


@dataclass(frozen=True, slots=True)
class Measured:
    """What a job's costs are known by: its machine, and the engine whose measured runs are like its own."""

    machine: Machine
    engine: str


def measured(gpu: str, gpus_per_node: int, trainer: str, precision: str) -> Measured | str:
    """Return what costs are known by, or in words why there are none. `trainer`: or an external flavour."""
    machine = machine_of(gpu, gpus_per_node)
    engine = calibration().trainers.get(trainer)
    if gpu == "cpu":
        return "CPU runs prove logic, not speed"
    if machine is None:
        return f"nobody has published what training reaches on {gpu}"
    if engine is None:
        return f"no measured runs are like those of trainer {trainer}"
    if precision == "fp32":
        return "the cost model knows 16-bit training"
    return Measured(machine, engine)


def work_of(model: Model, seq_len: int, *, dropout: bool) -> Work:
    """Return the work of a model's layers."""
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
        vocab=model.padded_vocab,
        seq_len=seq_len,
        gated=model.activation in ("swiglu", "geglu"),
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


def job_of(plan: Plan) -> Job | str:
    """Return a plan as the cost model's job, or in words why it has none."""
    layout, train, offload = plan.layout, plan.train, plan.offload
    trainer = plan.external.flavour if plan.external else plan.trainer
    known = measured(plan.gpu, layout.gpus_per_node, trainer, train.precision)
    if isinstance(known, str):
        return known
    return Job(
        work=work_of(plan.model, plan.batch.seq_len, dropout=train.dropout > 0),
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
        offload_parameters=offload.parameters != "none",
        on_nvme="nvme" in (offload.optimizer, offload.parameters),
        schedule=layout.schedule,
        recompute_every=train.recompute_every,
        first_layers=layout.stages[0].layers,
        last_layers=layout.stages[-1].layers,
        expert_tp=1 if layout.ep > 1 else None,
    )
