"""The fullest rank never holds more when a degree or the ZeRO stage grows."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from dsforge.cost.states import state_bytes
from tests.support.recipes import plan_of


def _fullest(model: dict[str, Any], precision: str, tp: int, pp: int, dp: int, zero: int) -> int:
    plan = plan_of(
        {
            "model": model,
            "cluster": {"gpus_per_node": tp * pp * dp},
            "parallel": {"tp": tp, "pp": pp, "dp": dp, "zero": zero},
            "batch": {"global": 64, "micro": 1},
            "train": {"precision": precision},
            "optimizer": {"grad_clip": 0.0},
        }
    )
    return plan.layout.fullest_rank_bytes


models = st.fixed_dictionaries(
    {
        "arch": st.sampled_from(["gpt", "llama"]),
        "layers": st.integers(4, 12),
        "hidden": st.sampled_from([64, 128, 512]),
        "heads": st.just(8),
        "kv_heads": st.just(8),
        "ffn_hidden": st.sampled_from([64, 512]),
        "vocab": st.integers(100, 60_000),
        "tied": st.booleans(),
    }
)
precisions = st.sampled_from(["fp32", "bf16"])
degrees = st.sampled_from([1, 2, 4])


@given(models, precisions, degrees, st.integers(1, 3), degrees, st.integers(0, 3))
def test_one_lever_more_never_costs_memory(
    model: dict[str, Any], precision: str, tp: int, pp: int, dp: int, zero: int
):
    assume(pp == 1 or zero <= 1)
    before = _fullest(model, precision, tp, pp, dp, zero)
    assert _fullest(model, precision, 2 * tp, pp, dp, zero) <= before
    assert _fullest(model, precision, tp, pp, 2 * dp, zero) <= before
    if zero <= 1:
        assert _fullest(model, precision, tp, pp + 1, dp, zero) <= before
    if zero < (3 if pp == 1 else 1) and (zero or precision == "fp32"):  # ZeRO-0 adds bf16 up in bf16
        assert _fullest(model, precision, tp, pp, dp, zero + 1) <= before


@given(st.integers(0, 10**12), precisions, st.integers(1, 4096))
def test_zero_shards_lose_no_element(parameters: int, precision: str, dp: int):
    whole = state_bytes(parameters, precision, 0, dp)
    for stage, kind in ((1, "optimizer"), (2, "gradients"), (3, "parameters")):
        sharded = state_bytes(parameters, precision, stage, dp)
        assert sharded[kind] * dp >= whole[kind] > (sharded[kind] - 16) * dp or parameters == 0
        assert state_bytes(parameters, precision, stage - 1, dp)[kind] == whole[kind]
