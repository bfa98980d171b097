"""Floating-point operations of a model's training, without those of recomputed activations."""

from __future__ import annotations


def flops_per_token(parameters: int, layers: int, attention_width: int, seq_len: int) -> int:
    """Return FLOP of forward and backward a token: 6 N + 12 l w s, attention counted without its causal half.

    N: parameters that are multiplied by; w: heads x head width. Source: Chowdhery et al. 2022 (PaLM,
    arXiv:2204.02311), appendix B.
    """
    return 6 * parameters + 12 * layers * attention_width * seq_len
