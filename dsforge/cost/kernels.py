"""Seconds that one rank computes for one layer of one micro-batch.

A matrix product takes its operations at an attained rate, and its operands once through memory: the sum, so
that narrow products of a wide TP are slower than their operations say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dsforge.cost.calibration import Calibration
from dsforge.cost.job import Experts, Job

_HALF_BYTES = 2.0
_MEMORY_SHARE = 0.8
"""Of the data sheet's bandwidth, for long reads and writes."""
_LOW = {"fp8": ("fp8", 2.0), "fp4": ("fp4", 4.0)}
"""Precisions below 16 bits: the share of their rate, and that rate over the 16-bit one."""
_TILE = 256
"""Columns of a kernel's tile (NVIDIA, Matrix Multiplication Background, tile quantization)."""
_LAUNCH_SECONDS = 5e-6
"""From a small kernel's start to the next one's, as PyTorch queues them without CUDA graphs."""
_EXPERT_PRODUCTS = 2
"""Launches of an expert's own, forward: into it and out of it. Fused, all experts are one."""
_NORM_PASSES = 10
"""Reads and writes of a hidden-wide tensor in a layer: norms, residuals, dropout, biases."""
_CAST_PASSES = 3
_SOFTMAX_PASSES = 10
_BACKWARD = 2.0
_FULL_HEAD = 128
"""Width of a head that kernels are tuned for; a narrower one has more exponentials for the same products."""
_NATIVE_FLASH = 3
_FLASH_BACKWARD = 2.5
"""FlashAttention recomputes its scores: Dao et al. 2022 (arXiv:2205.14135), section 3."""


@dataclass(frozen=True, slots=True)
class LayerSeconds:
    """A layer's forward and backward, and of its forward the attention core and the last product."""

    forward: float
    backward: float
    core: float
    last: float


def _tiled(columns: float) -> float:
    """Return the columns that are worked out: the last tile is a whole one."""
    return math.ceil(columns / _TILE) * _TILE


class Kernels:
    """Times of a job's kernels under a calibration."""

    def __init__(self, job: Job, constants: Calibration) -> None:
        self._job = job
        self._common = constants.common
        self._engine = constants.engines[job.engine]
        self._generation = constants.generations[job.machine.generation]
        machine = job.machine
        self.memory_rate = machine.memory_bytes_per_second
        self.half_rate = machine.matmul_tflops * 1e12 * self._generation.matmul
        self._fused = fused = self._engine.fused_experts and self._generation.fuses_experts
        self.host_seconds = 0.0 if fused else self._generation.expert_layer_seconds
        self._passes = self._common["fused_expert_passes" if fused else "expert_passes"]
        self._rate, self._bytes, self._cast = self.half_rate, _HALF_BYTES, 0.0
        if job.precision in _LOW:
            share, factor = _LOW[job.precision]
            self._rate = self.half_rate * factor * getattr(self._generation, share)
            self._bytes, self._cast = 1.0, self._common["cast"]

    def product(self, rows: float, columns: float, depth: float, *, rate: float | None = None) -> float:
        """Return seconds of a matrix product, by default at the job's precision."""
        operands = self._bytes * (rows * depth + depth * columns) + _HALF_BYTES * rows * columns
        casts = self._cast * _CAST_PASSES * (rows * depth + depth * columns)
        compute = 2 * rows * _tiled(columns) * depth / (rate or self._rate)
        return compute + operands / (self.memory_rate * _MEMORY_SHARE) + casts / self.memory_rate

    def layer(self) -> LayerSeconds:
        """Return one layer's times."""
        job, work, tp = self._job, self._job.work, self._job.tp
        tokens = job.tokens
        products = sum(self.product(tokens, columns / tp, depth) for depth, columns in work.projections)
        products += self.product(tokens, work.hidden, work.output_width / tp)
        mlp = self._mlp(work.ffn_hidden / tp) if work.experts is None else self._mixture(work.experts)
        core_forward, core_backward = self._core()
        rest = self._elementwise()
        return LayerSeconds(
            forward=products + mlp + core_forward + rest,
            backward=_BACKWARD * (products + mlp + rest) + core_backward,
            core=core_forward,
            last=0.0 if work.experts else self.product(tokens, work.hidden, work.ffn_hidden / tp),
        )

    def head(self) -> float:
        """Return forward and backward of the output projection and the loss."""
        job, work = self._job, self._job.work
        columns = work.vocab / job.tp
        product = 3 * self.product(job.tokens, columns, work.hidden, rate=self.half_rate)
        return product + self._common["logits"] * 6 * 4 * job.tokens * columns / self.memory_rate

    def _mlp(self, width: float) -> float:
        work = self._job.work
        into = (2 if work.gated else 1) * self.product(self._job.tokens, width, work.hidden)
        return into + self.product(self._job.tokens, work.hidden, width)

    def _mixture(self, experts: Experts) -> float:
        """Return a layer's MLP, the mean over those with experts and those without."""
        plain = experts.dense_layers / self._job.work.layers
        dense = self._mlp(self._job.work.ffn_hidden / self._job.tp)
        return plain * dense + (1 - plain) * self._experts(experts)

    def _experts(self, experts: Experts) -> float:
        """Every rank holds its share of count / EP experts and, evenly dealt, has chosen / TP of the work.

        Experts that TP splits take the tokens of all its ranks, whole ones those of their own rank. The rows
        of each end in a tile that is half empty on average.
        """
        work, matrices, split = self._job.work, 3 if self._job.work.gated else 2, self._job.experts_split
        width = experts.width / split
        rows = self._job.tokens * experts.chosen * split / self._job.tp
        own = experts.count / self._job.ep
        weights = own * work.hidden * width
        tiled = (matrices - 1) * work.hidden * _tiled(width) + width * _tiled(work.hidden)
        seconds = 2 * (rows + own * _TILE / 2) * tiled / self._rate
        seconds += 0.0 if self._fused else own * _EXPERT_PRODUCTS * _LAUNCH_SECONDS
        moved = matrices * self._bytes * (weights + rows * (work.hidden + width))
        seconds += moved / (self.memory_rate * _MEMORY_SHARE)
        seconds += self._cast * _CAST_PASSES * matrices * rows * work.hidden / self.memory_rate
        shared = self._mlp(experts.shared * experts.width / self._job.tp) if experts.shared else 0.0
        return seconds + shared

    def _core(self) -> tuple[float, float]:
        job, work = self._job, self._job.work
        operations = 4 * work.seq_len * job.tokens * work.score_width / job.tp
        if job.flash_attention:
            flash = self._engine.flash
            share = self._common[f"flash_attention_{flash}"]
            if flash < _NATIVE_FLASH:
                share *= self._generation.early_instructions
            # The causal half is skipped.
            if flash > 1:
                waits = self._generation.exponential_share
                operations *= 1 - waits + waits * _FULL_HEAD * work.heads / work.score_width
            forward = operations / 2 / (job.machine.matmul_tflops * 1e12 * share)
            return forward, _FLASH_BACKWARD * forward
        odd = self._common["odd_head"] if work.head_dim % 8 else 0.0
        uneven = self._common["uneven_head"] if work.head_dim % 64 and not odd else 0.0
        scores = work.heads / job.tp * work.seq_len * job.tokens * _HALF_BYTES
        forward = operations * (1 + odd + uneven) / (self.half_rate * _MEMORY_SHARE)
        forward += self._common["softmax"] * _SOFTMAX_PASSES * scores / self.memory_rate
        return forward, _BACKWARD * forward

    def _elementwise(self) -> float:
        job, work = self._job, self._job.work
        split = job.tp if job.sequence_parallel else 1
        experts = work.experts
        mlp = experts.width * experts.chosen if experts else work.ffn_hidden
        widths = _NORM_PASSES * work.hidden / split + (3 if work.gated else 2) * mlp / job.tp
        widths += 2 * work.attention_width / job.tp
        if experts:
            # A token's copies are sorted, handed to their experts, taken back, weighed and summed.
            widths += self._passes * experts.chosen * work.hidden * job.experts_split / job.tp
        traffic = self._common["elementwise"] * self._engine.unfused
        return traffic * _HALF_BYTES * job.tokens * widths / self.memory_rate
