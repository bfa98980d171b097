"""FLOP a token against published throughputs that were stated in both units."""

from __future__ import annotations

import pytest

from dsforge.layout.flops import flops_per_token


@pytest.mark.parametrize(
    ("parameters", "layers", "width", "tokens_per_second", "tflops"),
    [
        (1_316_000_000, 24, 2048, 39_837, 362),
        (6_658_900_000, 32, 4096, 9_670, 417),
        (64_862_400_000, 80, 8192, 1_007, 408),
    ],
    ids=["1b", "7b", "70b"],
)
def test_mosaics_table(parameters: int, layers: int, width: int, tokens_per_second: int, tflops: int):
    """mosaicml/llm-foundry, scripts/train/benchmarking/README.md: H100, 512 GPUs, 2,048 tokens, bf16."""
    found = flops_per_token(parameters, layers, width, 2048) * tokens_per_second / 1e12
    assert found == pytest.approx(tflops, rel=0.005)
