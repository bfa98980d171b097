"""Model states on GPU and CPU under ZeRO with offload, as DeepSpeed's own estimators count them.

Source: deepspeed 0.19.8, `estimate_zero2_model_states_mem_needs` (runtime/zero/stage_1_and_2.py) and
`estimate_zero3_model_states_mem_needs` (runtime/zero/stage3.py); what docs/code-docs/source/memory.rst prints
follows from the same formulas, but for ZeRO-2 without offload, see `gradients_whole`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

_WEIGHTS = 2
"""Bytes of a 16-bit weight."""
_UPDATED = 18
"""Bytes of what an update touches: 2 + 4 gradients in 16 and 32 bits, 4 master weights, 8 Adam moments."""
_ON_CPU = 16
"""Bytes of it that the CPU keeps: without the 16-bit gradients, which stay on the GPU."""
_LOADED = 4
"""Bytes of a weight as a model is built, in fp32."""
BUFFER_FACTOR = Fraction(3, 2)
"""Room for buffers on the CPU (`additional_buffer_factor`)."""


@dataclass(frozen=True, slots=True)
class GpuAndCpu:
    """Bytes of one GPU, and of one node's CPU memory."""

    gpu_bytes: int
    cpu_bytes: int


def zero2_states(
    parameters: int, gpus_per_node: int, nodes: int, *, offload: bool, gradients_whole: bool = False
) -> GpuAndCpu:
    """Return model states under ZeRO-2, the optimizer on the CPU or not.

    `gradients_whole`: 16-bit gradients are counted whole on every GPU, which earlier releases did and the
    documentation's figures still do (4 P + 16 P / N for 2 P + 18 P / N).
    """
    gpus = gpus_per_node * nodes
    if offload:
        cpu = parameters * max(_LOADED * gpus, _ON_CPU) * BUFFER_FACTOR
        return GpuAndCpu(_WEIGHTS * parameters, int(cpu))
    whole = 2 * _WEIGHTS if gradients_whole else _WEIGHTS
    shared = _WEIGHTS + _UPDATED - whole
    cpu = parameters * _LOADED * gpus_per_node * BUFFER_FACTOR
    return GpuAndCpu(whole * parameters + shared * parameters // gpus, int(cpu))


def zero3_states(
    parameters: int,
    largest_layer_parameters: int,
    gpus_per_node: int,
    nodes: int,
    *,
    offload_optimizer: bool,
    offload_parameters: bool,
    zero_init: bool = True,
) -> GpuAndCpu:
    """Return model states under ZeRO-3; parameters go to the CPU only with the optimizer.

    A GPU gathers one layer at a time, in 16 bits for weights and gradients. Without `zero_init` every
    process builds the whole model on the CPU first.
    """
    assert offload_optimizer or not offload_parameters
    gpus, gathered = gpus_per_node * nodes, 2 * _WEIGHTS * largest_layer_parameters
    built = parameters * _LOADED * gpus_per_node
    if not offload_optimizer:
        gpu = gathered + _UPDATED * parameters // gpus
        cpu = Fraction(_LOADED * largest_layer_parameters * gpus_per_node) if zero_init else Fraction(built)
        return GpuAndCpu(gpu, int(cpu * BUFFER_FACTOR))
    kept = Fraction(parameters * (_UPDATED if offload_parameters else _ON_CPU), nodes)
    cpu = kept if zero_init else max(Fraction(built), kept)
    sharded = 0 if offload_parameters else _WEIGHTS * parameters // gpus
    return GpuAndCpu(gathered + sharded, int(cpu * BUFFER_FACTOR))
