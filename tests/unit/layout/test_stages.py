"""How layers are dealt to stages."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dsforge.layout.shape import resolve_shape
from dsforge.layout.stages import (
    assign,
    held,
    split_by_weight,
    split_contiguous,
    split_uniform,
    stage_components,
)


def _every_deal(layers: int, pp: int) -> list[list[int]]:
    if pp == 1:
        return [[layers]]
    return [[n, *rest] for n in range(1, layers - pp + 2) for rest in _every_deal(layers - n, pp - 1)]


@pytest.mark.parametrize("layers", [4, 7, 9])
@pytest.mark.parametrize("pp", [1, 2, 3, 4])
@pytest.mark.parametrize("extras", [(0, 0), (5, 5), (37, 12), (3, 41), (100, 1)])
def test_no_other_deal_has_a_lighter_heaviest_stage(layers: int, pp: int, extras: tuple[int, int]):
    def heaviest(counts: list[int]) -> int:
        weights = [10 * count for count in counts]
        weights[0] += extras[0]
        weights[-1] += extras[1]
        return max(weights)

    counts = split_by_weight(10, *extras, layers, pp)
    assert sum(counts) == layers
    assert min(counts) >= 1
    assert heaviest(counts) == min(heaviest(deal) for deal in _every_deal(layers, pp))


@pytest.mark.parametrize("weights", [[3, 3, 10, 10, 10, 10, 10], [50, 1, 1, 1, 1], [7, 2, 9, 4, 4, 8, 1, 6]])
@pytest.mark.parametrize("pp", [1, 2, 3, 4])
@pytest.mark.parametrize("extras", [(0, 0), (5, 5), (37, 12), (3, 41), (100, 1)])
def test_unlike_layers_are_dealt_so_that_the_heaviest_stage_is_lightest(
    weights: list[int], pp: int, extras: tuple[int, int]
):
    def heaviest(counts: list[int]) -> int:
        ends = [sum(counts[:stage]) for stage in range(pp + 1)]
        held = [sum(weights[a:b]) for a, b in pairwise(ends)]
        held[0] += extras[0]
        held[-1] += extras[1]
        return max(held)

    counts = split_contiguous(weights, *extras, pp)
    assert sum(counts) == len(weights)
    assert min(counts) >= 1
    assert heaviest(counts) == min(heaviest(deal) for deal in _every_deal(len(weights), pp))


def test_light_dense_layers_share_a_stage():
    # DeepSeek-V3: three dense layers of 0.58B before 58 of 11.5B; the embedding weighs 0.93B.
    stages = assign(resolve_shape("deepseek-v3", 4096), 4, "parameters", 129_280)
    assert [stage.count for stage in stages] == [17, 15, 15, 14]


def test_ties_go_to_the_later_stage():
    assert split_by_weight(10, 0, 0, 5, 2) == [2, 3]


def test_uniform_gives_the_rest_to_the_first_stages():
    assert split_uniform(8, 4) == [2, 2, 2, 2]
    assert split_uniform(10, 4) == [3, 3, 2, 2]


def test_a_large_vocabulary_takes_layers_from_both_ends():
    shape = resolve_shape("llama3-8b", 8192)
    counts = [stage.count for stage in assign(shape, 4, "parameters", 128_256)]
    # Embedding and head weigh 2.4 layers each: (32 + 4.8) / 4 = 9.2 layers a stage.
    assert counts == [7, 9, 9, 7]


def test_stages_follow_one_another_and_only_the_ends_hold_embedding_and_head():
    stages = assign(resolve_shape("gpt2", 1024), 3, "uniform", 50_304)
    assert [(s.first, s.count, s.has_embedding, s.has_head) for s in stages] == [
        (0, 4, True, False),
        (4, 4, False, False),
        (8, 4, False, True),
    ]
    assert all(a.first + a.count == b.first for a, b in pairwise(stages))


def test_a_tied_head_is_a_copy_on_the_last_stage_only_where_there_are_several():
    shape = resolve_shape("gpt2", 1024)
    (alone,) = assign(shape, 1, "parameters", 50_257)
    assert "head" not in stage_components(shape, alone, 50_257)
    last = assign(shape, 2, "parameters", 50_257)[-1]
    assert stage_components(shape, last, 50_257)["head"] == 38_597_376


def test_thousands_of_layers_and_stages_are_dealt_exactly():
    assert split_by_weight(3, 10, 0, 10_000, 5_000) == [1, *[2] * 4_998, 3]


def test_virtual_stages_are_equal_blocks_dealt_out_in_turn():
    shape = resolve_shape("gpt2", 1024)
    first, last = assign(shape, 2, "uniform", 50_304, 3)
    assert (first.starts, first.count, last.starts, last.count) == ((0, 4, 8), 6, (2, 6, 10), 6)
    assert (first.has_embedding, last.has_head) == (True, True)
    whole = assign(shape, 2, "uniform", 50_304)
    for one, other in zip((first, last), whole, strict=True):
        assert stage_components(shape, one, 50_304) == stage_components(shape, other, 50_304)


def test_experts_are_dealt_out_whole_and_no_longer_split_by_tp():
    shape = resolve_shape("mixtral-8x7b", 4096)
    (stage,) = assign(shape, 1, "uniform", 32_000)
    # 32 layers of eight experts, each three matrices of 4096 x 14336.
    expert = 3 * 4096 * 14336
    assert held(shape, stage, 32_000, 2, 4).experts == 32 * 2 * expert
    whole, split = held(shape, stage, 32_000, 2), held(shape, stage, 32_000, 2, 4)
    assert whole.experts == 0
    assert whole.shared - split.shared == 32 * 8 * expert // 2
