"""Floating-point operations of training a token, in the conventions that publications use."""

from __future__ import annotations

from dataclasses import dataclass

from dsforge.cost.job import Job
from dsforge.layout.flops import flops_per_token


@dataclass(frozen=True, slots=True)
class Operations:
    """FLOP a token of forward and backward. `full`: attention counted whole; `causal`: its lower half."""

    full: float
    causal: float


def model_operations(job: Job, parameters: int) -> Operations:
    """Return 6 N + 12 l w s, and with 6 l w s: what the model asks for, nothing recomputed.

    N: `parameters` that a token is multiplied by; source: Chowdhery et al. 2022 (PaLM, arXiv:2204.02311),
    appendix B.
    """
    width = round(job.work.score_width)
    full = flops_per_token(parameters, job.work.layers, width, job.work.seq_len)
    return Operations(full, (full + 6 * parameters) / 2)


def hardware_operations(job: Job, parameters: int) -> Operations:
    """Return what is computed: the model's operations and those of recomputed layers or attention cores."""
    asked, work = model_operations(job, parameters), job.work
    core = 4 * work.layers * work.score_width * work.seq_len
    layers = parameters - work.vocab * work.hidden * (1 if work.tied else 2)
    again, cores = {
        "none": (0.0, 0.0),
        "selective": (0.0, 1.0),
        "operators": (0.5, 0.0),
        "alternate": (0.5, 0.5),
        "full": (1.0, 1.0),
    }[job.recompute]
    return Operations(
        asked.full + again * 2 * layers + cores * core, asked.causal + again * 2 * layers + cores * core / 2
    )
