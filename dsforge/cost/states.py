"""Model states: bytes of parameters, gradients and optimizer states a rank holds.

Source: Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054), section 3.1, figure 1 and table 1. Mixed precision
Adam: 2 + 2 + 12 bytes a parameter; fp32 Adam: 4 + 4 + 8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dsforge.layout.optimizers import ADAM_MOMENTS

Keeper = Literal["deepspeed", "fsdp", "megatron", "nanotron"]
"""Whose way an engine keeps its states. `fsdp`: any of PyTorch's own replicas, `ddp` among them."""


@dataclass(frozen=True, slots=True)
class BytesPerParameter:
    """Bytes a parameter, by kind of state; `sums`: of micro-batches' gradients in fp32, beside them."""

    parameters: int
    gradients: int
    optimizer: int
    sums: int = 0

    @property
    def total(self) -> int:
        """Bytes of all states of one parameter."""
        return self.parameters + self.gradients + self.optimizer


ADAM = {
    "fp32": BytesPerParameter(parameters=4, gradients=4, optimizer=8),
    "bf16": BytesPerParameter(parameters=2, gradients=2, optimizer=12),
    "fp16": BytesPerParameter(parameters=2, gradients=2, optimizer=12),
}
"""Adam: fp32 keeps two moments (8); mixed precision also keeps a master copy (4 + 8)."""


@dataclass(frozen=True, slots=True)
class DistributedOptimizer:
    """Bytes a parameter under Megatron: what every replica keeps, and what the optimizer may share out."""

    kept: int
    shared: int

    def bytes_per_parameter(self, dp: int | None) -> float:
        """Return bytes a parameter on one of `dp` replicas; None without the distributed optimizer."""
        return self.kept + self.shared / (1 if dp is None else dp)


MEGATRON = {
    "fp16": DistributedOptimizer(kept=4, shared=16),
    "bf16": DistributedOptimizer(kept=6, shared=12),
    "fp32": DistributedOptimizer(kept=8, shared=8),
}
"""Megatron-LM, docs/source/api-guide/dist_optimizer.md. fp16 keeps weights and gradients in 2 bytes each and
shares fp32 copies of both and two moments; bf16 accumulates gradients in fp32 (2 + 4) and shares master
weights and moments; fp32 keeps both in 4 bytes."""


def bytes_per_parameter(keeper: Keeper, precision: str, zero: int) -> BytesPerParameter:
    """Return what an engine keeps of a parameter under Adam, before anything is shared out.

    PyTorch's own replicas keep all in fp32, and cast as they compute; in bf16 Megatron's gradients are the
    sums, DeepSpeed's stand beside them.
    """
    if precision == "fp32" or keeper == "fsdp":
        return ADAM["fp32"]
    each = ADAM[precision]
    if keeper == "megatron":
        kept = MEGATRON[precision]
        return replace(each, gradients=kept.kept - each.parameters, optimizer=kept.shared)
    sums = keeper == "nanotron" or sums_in_fp32(precision, zero)
    return replace(each, sums=4 if sums else 0)


def cuts_parameters(keeper: Keeper, zero: int) -> bool:
    """Tell whether replicas hold parts of the parameters from step to step."""
    return zero >= (1 if keeper == "fsdp" else 3)


def state_bytes(
    parameters: int,
    precision: str,
    zero: int,
    dp: int,
    moments: int = ADAM_MOMENTS,
    keeper: Keeper = "deepspeed",
) -> dict[str, int]:
    """Return bytes a rank holds for its parameters, by kind; shards are rounded up to whole elements.

    `moments`: fp32 values that the optimizer keeps of each, two for Adam. Below ZeRO-3 `fully_shard` gathers
    all weights, in the precision that is computed in, before it gives any of them up.
    """
    each = bytes_per_parameter(keeper, precision, zero)
    shard = -(-parameters // dp)
    cut = cuts_parameters(keeper, zero)
    gathered = ADAM[precision].parameters * parameters if cut and zero < 3 and dp > 1 else 0
    return {
        "parameters": each.parameters * (shard if cut else parameters) + gathered,
        "gradients": each.gradients * (shard if zero >= 2 else parameters),
        "optimizer": (each.optimizer - 4 * (ADAM_MOMENTS - moments)) * (shard if zero >= 1 else parameters),
    }


def sums_in_fp32(precision: str, zero: int) -> bool:
    """Tell whether DeepSpeed sums micro-batches' gradients in fp32: bf16 sums, where ZeRO allows it."""
    return precision == "bf16" and zero >= 1


def gradient_sum_bytes(
    parameters: int, each: BytesPerParameter, zero: int, dp: int, *, offloaded: bool = False
) -> int:
    """Return bytes a rank holds for fp32 sums of gradients, on top of its model states.

    Where the optimizer is `offloaded`, ZeRO-1 reduces the whole sums into a buffer of the shard besides
    (deepspeed 0.19.8, `runtime/zero/stage_1_and_2.py`, `_build_compact_grad_partition_buffer`).
    """
    shard = -(-parameters // dp)
    if zero >= 2:
        return each.sums * shard
    return each.sums * (parameters + shard if offloaded else parameters)


def off_the_gpu(precision: str, zero: int, *, optimizer: bool, parameters: bool) -> frozenset[str]:
    """Return the kinds of states that offload takes off the GPU.

    The host updates. Under ZeRO-3 the shards of gradients go there as they come; under ZeRO-1 and 2 fp32
    sums stay on the GPU until the update, and gradients in 16 bits go into them
    (deepspeed 0.19.8, `runtime/zero/stage_1_and_2.py`, `_fill_param_grad_accum_attribute`).
    """
    kinds = {"optimizer"} if optimizer else set()
    if optimizer and (zero >= 2 or sums_in_fp32(precision, zero)):
        kinds.add("gradients")
    if optimizer and zero >= 3:
        kinds.add("sums")
    return frozenset(kinds | {"parameters"} if parameters else kinds)


@dataclass(frozen=True, slots=True)
class Total:
    """Bytes that a rank holds from the first step to the last; activations and buffers come on top."""

    states: int
    fp32_sums: int

    @property
    def bytes(self) -> int:
        """Model states and fp32 sums of gradients."""
        return self.states + self.fp32_sums


@dataclass(frozen=True, slots=True)
class Shares:
    """A rank's parameters, and how many ranks hold the same ones.

    `copies`: replicas and parts of sequences. `expert_copies`: ranks of the stage with the same experts.
    `moments`: fp32 values that the optimizer keeps of each. `keeper`: in whose way.
    """

    shared: int
    copies: int
    experts: int = 0
    expert_copies: int = 1
    moments: int = ADAM_MOMENTS
    keeper: Keeper = "deepspeed"

    def states(self, precision: str, zero: int, off: frozenset[str] = frozenset()) -> dict[str, int]:
        """Return bytes of model states by kind; kinds that are `off` the GPU take none."""
        found = state_bytes(self.shared, precision, zero, self.copies, self.moments, self.keeper)
        if self.experts:
            copies = self.expert_copies
            more = state_bytes(self.experts, precision, zero, copies, self.moments, self.keeper)
            found = {kind: size + more[kind] for kind, size in found.items()}
        return {kind: 0 if kind in off else size for kind, size in found.items()}

    def fp32_sums(self, precision: str, zero: int, off: frozenset[str] = frozenset()) -> int:
        """Return bytes of fp32 sums of gradients."""
        if "sums" in off:
            return 0
        held = ((self.shared, self.copies), (self.experts, self.expert_copies))
        each, offloaded = bytes_per_parameter(self.keeper, precision, zero), "optimizer" in off
        return sum(gradient_sum_bytes(one, each, zero, dp, offloaded=offloaded) for one, dp in held)

    def total(self, precision: str, zero: int, off: frozenset[str] = frozenset()) -> Total:
        """Return both."""
        return Total(sum(self.states(precision, zero, off).values()), self.fp32_sums(precision, zero, off))


@dataclass(frozen=True, slots=True)
class NominalStates:
    """The quick figure people quote: the name's size times bytes a parameter, mean over TP x PP."""

    parameters: float
    bytes_per_parameter: int
    formula: str
    model_state_bytes: float
    model_parallel_ranks: int
    bytes_per_gpu: float


def nominal(parameters: float, precision: str, tp: int, pp: int) -> NominalStates:
    """Return nominal states, without ZeRO and activations.

    Mixed precision counts 2 (weights) + 12 (optimizer), as large-scale worked examples do, leaving
    gradients out; fp32 counts 4 + 4 + 8, gradients included.
    """
    each = ADAM[precision]
    if precision == "fp32":
        per_parameter = each.total
        formula = f"{each.parameters} weights + {each.gradients} gradients + {each.optimizer} Adam moments"
    else:
        per_parameter = each.parameters + each.optimizer
        formula = f"{each.parameters} weights + {each.optimizer} optimizer, gradients not counted"
    total = parameters * per_parameter
    ranks = tp * pp
    return NominalStates(parameters, per_parameter, formula, total, ranks, total / ranks)
