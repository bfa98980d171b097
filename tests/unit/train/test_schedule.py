import pytest

from dsforge.train import reference
from dsforge.train.schedule import learning_rate


@pytest.mark.parametrize(
    ("kind", "step", "expected"),
    [
        ("cosine", 0, 0.005),  # warm-up: 0.01 x 1 / 2
        ("cosine", 1, 0.01),
        ("cosine", 2, 0.01),  # progress 0
        ("cosine", 6, 0.0055),  # progress 4 / 8: half-way between lr and min_lr
        ("cosine", 10, 0.001),
        ("linear", 4, 0.00775),  # progress 2 / 8
        ("constant", 9, 0.01),
    ],
)
def test_rates_worked_by_hand(make_plan, kind, step, expected):
    options = make_plan(optimizer__lr_schedule=kind).optimizer
    assert learning_rate(step, 10, options) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", ["cosine", "linear", "constant"])
@pytest.mark.parametrize("warmup", [0, 3, 20])
def test_trainer_and_reference_agree_at_every_step(make_plan, kind, warmup):
    options = make_plan(optimizer__lr_schedule=kind, optimizer__warmup_steps=warmup).optimizer
    for step in range(12):
        assert learning_rate(step, 12, options) == pytest.approx(reference.rate(options, step, 12), rel=1e-12)
