"""Parameter counts, each worked by hand from the published shape."""

from __future__ import annotations

import pytest

from dsforge.layout.shape import padded_vocab, resolve_shape


def test_gpt2_by_component():
    shape = resolve_shape("gpt2", 1024)
    # Per layer: QKV 768 x 2304 + 2304, output 768 x 768 + 768; MLP 768 x 3072 + 3072 and 3072 x 768 + 768;
    # two LayerNorms of 2 x 768.
    assert shape.layer_parameters() == {"attention": 2_362_368, "mlp": 4_722_432, "norm": 3_072}
    assert shape.components() == {
        "word_embedding": 38_597_376,  # 50,257 x 768
        "position_embedding": 786_432,  # 1,024 x 768
        "attention": 28_348_416,
        "mlp": 56_669_184,
        "norm": 36_864,
        "final_norm": 1_536,
        "head": 0,
    }
    assert shape.parameters() == 124_439_808


def test_llama3_8b_by_component():
    shape = resolve_shape("llama3-8b", 8192)
    assert shape.components() == {
        "word_embedding": 525_336_576,  # 128,256 x 4,096
        "attention": 1_342_177_280,  # 32 x (4,096 x (4,096 + 2 x 1,024) + 4,096 x 4,096)
        "mlp": 5_637_144_576,  # 32 x 3 x 4,096 x 14,336
        "norm": 262_144,  # 32 x 2 x 4,096
        "final_norm": 4_096,
        "head": 525_336_576,
    }
    assert shape.parameters() == 8_030_261_248


def test_llama3_70b_by_component():
    shape = resolve_shape("llama3-70b", 8192)
    assert shape.components() == {
        "word_embedding": 1_050_673_152,  # 128,256 x 8,192
        "attention": 12_079_595_520,  # 80 x (8,192 x (8,192 + 2 x 1,024) + 8,192 x 8,192)
        "mlp": 56_371_445_760,  # 80 x 3 x 8,192 x 28,672
        "norm": 1_310_720,
        "final_norm": 8_192,
        "head": 1_050_673_152,
    }
    assert shape.parameters() == 70_553_706_496


def test_gpt3_175b_by_component():
    # A layer is 12 h^2 + 13 h = 1,812,099,072 for h = 12,288.
    shape = resolve_shape("175B", 2048)
    assert sum(shape.layer_parameters().values()) == 1_812_099_072
    assert shape.components()["word_embedding"] == 617_558_016
    assert shape.components()["position_embedding"] == 25_165_824
    assert shape.parameters() == 96 * 1_812_099_072 + 617_558_016 + 25_165_824 + 24_576 == 174_604_259_328


@pytest.mark.parametrize(
    ("name", "published"),
    # Parameters of the released checkpoints (gpt2, -medium, -large, -xl).
    [
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
    ],
)
def test_the_gpt2_family_as_published(name: str, published: int):
    assert resolve_shape(name, 1024).parameters() == published


def test_presets_keep_their_own_positions_whatever_the_sequence():
    assert resolve_shape("gpt2", 128).parameters() == 124_439_808


def test_untied_gpt_has_a_head_and_tied_llama_has_none():
    from dsforge.recipe.model_sections import ShapeSection

    untied = resolve_shape(ShapeSection(arch="gpt", layers=1, hidden=8, heads=2, vocab=10, tied=False), 4)
    assert untied.components()["head"] == 80
    tied = resolve_shape(ShapeSection(arch="llama", layers=1, hidden=8, heads=2, vocab=10, tied=True), 4)
    assert tied.components()["head"] == 0


def test_llama_default_width_is_two_thirds_of_four_hidden_up_to_256():
    from dsforge.recipe.model_sections import ShapeSection

    # Llama 7B: hidden 4,096 gives 11,008 (Touvron et al. 2023).
    shape = resolve_shape(ShapeSection(arch="llama", layers=1, hidden=4096, heads=32, vocab=10), 4)
    assert shape.ffn_hidden == 11_008
    assert shape.norm_eps == 1e-5
    assert shape.rope_theta == 10_000.0


@pytest.mark.parametrize(
    ("vocab", "tp", "padded"),
    [(50_257, 1, 50_304), (50_257, 8, 51_200), (128_256, 1, 128_256), (128_256, 4, 128_512), (1, 2, 256)],
)
def test_vocabulary_is_padded_to_128_times_tp(vocab: int, tp: int, padded: int):
    assert padded_vocab(vocab, tp) == padded
