"""Buffers that matrix products, pipelines and unfused attention keep between steps.

Source: PyTorch, aten/src/ATen/cuda/CublasHandlePool.cpp (a workspace for each handle: forward and backward
threads have their own); Transformer Engine, pytorch/module/base.py (`get_cublas_workspace_size_bytes`, four
more for grouped products); Megatron, core/utils.py (`GlobalMemoryBuffer`).
"""

from __future__ import annotations

from dsforge.cost.job import Job
from dsforge.cost.memory.constants import MIB, EngineMemory

_HANDLES = 2
_LARGE, _SMALL = 32.0, 8.125
_MIDDLE = 20.0
"""On Blackwell some releases of PyTorch take the large workspace and some the small."""
_ENGINE_LARGE, _ENGINE_SMALL = 32.0, 4.0
_GROUPED = 4
_EARLY = ("volta", "ampere")
_HALF = 2


def workspaces(job: Job, engine: EngineMemory) -> float:
    """Return bytes of the workspaces of matrix products."""
    generation = job.machine.generation
    if job.deterministic or generation == "hopper":
        each = _LARGE
    else:
        each = _SMALL if generation in _EARLY else _MIDDLE
    own = 0.0
    if engine.transformer_engine and job.fused_layers:
        one = _ENGINE_SMALL if generation in _EARLY else _ENGINE_LARGE
        own = one * (1 + (_GROUPED if job.work.experts and job.grouped_experts else 0))
    return MIB * (_HANDLES * each + own)


def standing(job: Job, engine: EngineMemory) -> float:
    """Return bytes of all buffers that last from step to step."""
    found = workspaces(job, engine)
    kinds = (job.pp > 1) + (job.cp > 1) + (2 if job.work.experts else 0)
    found += engine.group_mib * MIB * kinds
    row = _HALF * job.tokens * job.work.hidden
    if engine.states == "megatron" and job.zero >= 3:
        # Megatron's FSDP keeps embedding and head gathered, and a gradient of that size in 16 and 32 bits.
        found += 10 * job.work.vocab / job.tp * job.work.hidden
    if job.pp > 1:
        found += 2 * row * job.vp / (job.tp if job.sequence_parallel else 1)
    if job.sequence_parallel and job.tp > 1:
        found += row
    if engine.states == "megatron" and not job.flash_attention and not job.fused_layers:
        found += _HALF * job.work.heads / job.tp * job.work.seq_len * job.tokens
    return found
