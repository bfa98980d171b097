"""What a change of each recipe key does: to what is learnt, to how it runs, or to neither."""

from __future__ import annotations

from enum import IntEnum


class Consequence(IntEnum):
    """From the least to the most."""

    COSMETIC = 0
    EXECUTION = 1
    CONVERGENCE = 2

    @property
    def word(self) -> str:
        """Return the name as it is written in output and options."""
        return self.name.lower()


_C = Consequence.CONVERGENCE
_E = Consequence.EXECUTION
_N = Consequence.COSMETIC

CONSEQUENCES: dict[str, Consequence] = {
    "version": _N,
    "extends": _N,
    "name": _N,
    **dict.fromkeys(
        (
            "model",
            "model.arch",
            "model.layers",
            "model.hidden",
            "model.heads",
            "model.kv_heads",
            "model.head_dim",
            "model.ffn_hidden",
            "model.vocab",
            "model.tied",
            "model.max_positions",
            "model.rope_theta",
            "model.norm_eps",
            "model.experts.count",
            "model.experts.active",
            "model.experts.ffn_hidden",
            "model.experts.normalised",
            "model.experts.dense_layers",
        ),
        _C,
    ),
    **dict.fromkeys(
        (
            "cluster.nodes",
            "cluster.gpus_per_node",
            "cluster.gpu",
            "cluster.hostfile",
            "cluster.include",
            "cluster.exclude",
            "cluster.spares",
            "cluster.interface",
            "cluster.fabric",
        ),
        _E,
    ),
    **dict.fromkeys(
        ("cluster.shape", "cluster.price_per_gpu_hour", "cluster.power_overhead", "cluster.storage_gb_per_s"),
        _N,
    ),
    **dict.fromkeys(
        (
            "parallel.tp",
            "parallel.pp",
            "parallel.vp",
            "parallel.cp",
            "parallel.ep",
            "parallel.dp",
            "parallel.zero",
            "parallel.schedule",
            "parallel.partition",
            "parallel.partition_weights",
            "parallel.sequence_parallel",
            "offload.optimizer",
            "offload.parameters",
            "offload.path",
        ),
        _E,
    ),
    "batch.global": _C,
    "batch.micro": _E,
    "batch.seq_len": _C,
    "train.steps": _C,
    "train.tokens": _C,
    "train.eval_every": _E,
    "train.eval_samples": _C,  # as data.valid
    "train.precision": _C,
    "train.recompute": _E,
    "train.recompute_every": _E,
    "train.dropout": _C,
    "train.attention_dropout": _C,
    "train.balance_loss": _C,
    "train.balance_over": _C,
    "train.seed": _C,
    **dict.fromkeys(
        ("train.checks.gradients_every", "train.checks.parameters_every", "train.checks.modules"), _E
    ),
    **dict.fromkeys(
        (
            "optimizer.type",
            "optimizer.lr",
            "optimizer.min_lr",
            "optimizer.lr_schedule",
            "optimizer.warmup_steps",
            "optimizer.weight_decay",
            "optimizer.betas",
            "optimizer.momentum",
            "optimizer.eps",
            "optimizer.grad_clip",
        ),
        _C,
    ),
    "data": _C,
    "data.train": _C,
    "data.valid": _C,  # nothing is learnt from it, but the figure that convergence is judged by is another
    "data.tokenizer": _C,
    "data.workers": _E,
    "checkpoint.dir": _E,
    "checkpoint.every_steps": _E,
    "checkpoint.at_end": _E,
    "checkpoint.keep": _E,
    "checkpoint.resume": _C,  # other weights to start from
    "checkpoint.init": _C,
    **dict.fromkeys(
        (
            "launch.launcher",
            "launch.rendezvous",
            *("launch.slurm.partition", "launch.slurm.account", "launch.slurm.qos"),
            *("launch.slurm.constraint", "launch.slurm.time", "launch.slurm.notice"),
            *("launch.slurm.requeue", "launch.slurm.cpus_per_task", "launch.slurm.extra"),
            *("launch.kubernetes.kind", "launch.kubernetes.namespace", "launch.kubernetes.image"),
            *("launch.kubernetes.python", "launch.kubernetes.volumes", "launch.kubernetes.gpu_resource"),
            *("launch.kubernetes.resources", "launch.kubernetes.service_account"),
            *("launch.kubernetes.image_pull_secrets", "launch.kubernetes.node_selector"),
            *("launch.kubernetes.tolerations", "launch.kubernetes.labels", "launch.kubernetes.annotations"),
            *("launch.pbs.queue", "launch.pbs.project", "launch.pbs.account", "launch.pbs.time"),
            *("launch.pbs.notice", "launch.pbs.cpus_per_rank", "launch.pbs.place"),
            *("launch.pbs.resources", "launch.pbs.rerun"),
            "launch.env",
            "launch.env_from",
            "launch.restarts",
            "launch.restart_window",
            "launch.restart_backoff",
            "launch.shrink",
            "launch.watchdog",
            "launch.rendezvous_timeout",
            "launch.collective_timeout",
            "launch.stop_timeout",
        ),
        _E,
    ),
    **dict.fromkeys(("monitor.tensorboard", "monitor.wandb", "monitor.prometheus"), _N),
    "trainer": _C,  # another program, which may draw other weights and read data in another order
    **dict.fromkeys(
        ("external", "external.flavour", "external.path", "external.entry", "external.arguments"), _C
    ),
    "profiles": _N,  # a chosen profile shows in the values that it sets
}
"""One row for every key that holds a value; a test holds it equal to the schema."""


def consequence(dotted: str) -> Consequence:
    """Return the consequence of a key; keys that users choose (`launch.env.NAME`) have their mapping's."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        known = CONSEQUENCES.get(".".join(parts[:length]))
        if known is not None:
            return known
    raise AssertionError(f"no consequence is declared for {dotted}")
