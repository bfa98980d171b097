"""Parameters over stages and ranks sum to the model, exactly, against a list of every tensor."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from dsforge.catalog.families import families
from dsforge.layout.shape import Shape, padded_vocab
from dsforge.layout.stages import StageLayers, assign, held, stage_components


class Tensor(NamedTuple):
    """A weight as a rank of an unsplit model holds it. `split`: dealt out over the TP ranks."""

    shape: tuple[int, ...]
    split: bool


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Shape, int, int]:
    """Return a legal shape with TP and PP degrees."""
    tp = draw(st.sampled_from([1, 2, 4, 8]))
    pp = draw(st.integers(1, 4))
    kv_heads = tp * draw(st.integers(1, 3))
    arch = draw(st.sampled_from(["gpt", "llama"]))
    hidden = draw(st.integers(1, 64)) * 2
    shape = Shape(
        name="drawn",
        arch=arch,
        layers=draw(st.integers(pp, 9)),
        hidden=hidden,
        heads=kv_heads * draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        head_dim=2 * draw(st.integers(1, 16)),
        ffn_hidden=tp * draw(st.integers(1, 40)),
        vocab=draw(st.integers(1, 3000)),
        max_positions=draw(st.integers(1, 128)),
        tied=draw(st.booleans()),
        norm_eps=1e-5,
        rope_theta=1e4,
        nominal_parameters=None,
        embedding_width=hidden,
        traits=families()[arch].traits,
    )
    return shape, tp, pp


def layer_tensors(shape: Shape) -> list[Tensor]:
    h, f = shape.hidden, shape.ffn_hidden
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    if shape.arch == "llama":
        return [
            *(Tensor((rows, h), split=True) for rows in (q, kv, kv, f, f)),
            Tensor((h, q), split=True),
            Tensor((h, f), split=True),
            *[Tensor((h,), split=False)] * 2,
        ]
    return [
        *(Tensor((rows, h), split=True) for rows in (q, kv, kv, f)),
        *(Tensor((rows,), split=True) for rows in (q, kv, kv, f)),
        Tensor((h, q), split=True),
        Tensor((h, f), split=True),
        # Biases of the row-parallel layers, and two LayerNorms of scale and shift.
        *[Tensor((h,), split=False)] * (2 + 4),
    ]


def stage_tensors(shape: Shape, stage: StageLayers, vocab: int) -> list[Tensor]:
    tensors = layer_tensors(shape) * stage.count
    table = Tensor((vocab, shape.hidden), split=True)
    if stage.has_embedding:
        tensors.append(table)
        if shape.arch == "gpt":
            tensors.append(Tensor((shape.max_positions, shape.hidden), split=False))
    if stage.has_head:
        tensors += [Tensor((shape.hidden,), split=False)] * (2 if shape.arch == "gpt" else 1)
        if not (shape.tied and stage.has_embedding):
            tensors.append(table)
    return tensors


@given(shapes(), st.sampled_from(["uniform", "parameters"]))
def test_stages_sum_to_the_model(drawn: tuple[Shape, int, int], method: str):
    shape, _, pp = drawn
    stages = assign(shape, pp, method, shape.vocab)
    assert sum(stage.count for stage in stages) == shape.layers
    whole = [sum(stage_components(shape, stage, shape.vocab).values()) for stage in stages]
    copy_of_the_tied_head = shape.vocab * shape.hidden if shape.tied and pp > 1 else 0
    assert sum(whole) == shape.parameters() + copy_of_the_tied_head
    assert whole == [sum(prod(t.shape) for t in stage_tensors(shape, s, shape.vocab)) for s in stages]


@given(shapes())
def test_ranks_sum_to_the_model_and_the_copies_they_keep(drawn: tuple[Shape, int, int]):
    shape, tp, pp = drawn
    vocab = padded_vocab(shape.vocab, tp)
    total = 0
    for stage in assign(shape, pp, "parameters", vocab):
        tensors = stage_tensors(shape, stage, vocab)
        each = held(shape, stage, vocab, tp).total
        assert each == sum(prod(t.shape) // tp if t.split else prod(t.shape) for t in tensors)
        kept_whole = sum(prod(t.shape) for t in tensors if not t.split)
        total += each * tp - kept_whole * (tp - 1)
    padding = (vocab - shape.vocab) * shape.hidden
    tables = 1 if shape.tied and pp == 1 else 2
    copy_of_the_tied_head = shape.vocab * shape.hidden if shape.tied and pp > 1 else 0
    assert total == shape.parameters() + copy_of_the_tied_head + tables * padding
