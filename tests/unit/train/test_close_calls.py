"""Where rounding chooses between two experts: found by the one process, and no fault of a layout."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dsforge.launch.types import RunOutcome
from dsforge.ops.close_calls import Settled, parted, settle
from dsforge.ops.reference_run import Reference
from dsforge.plan.types import Plan
from dsforge.records.close_calls import CloseCall, may_explain
from dsforge.records.run_state import RunExit
from dsforge.train import reference, reference_calls, reference_model
from dsforge.train.reference_model import Routed
from tests.support.recipes import plan_of
from tests.support.replica_ranks import Text

TOLERANCE = 1e-5
STEPS = 4
EPSILON = 2.0**-23


def plan_for(**optimizer: Any) -> Plan:
    experts = {"count": 4, "active": 2, "ffn_hidden": 40}
    shape = {"arch": "mixtral", "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "vocab": 61}
    return plan_of(
        {
            "trainer": "ddp",
            "model": {**shape, "ffn_hidden": None, "experts": experts},
            "cluster": {"gpus_per_node": 1},
            "parallel": {"tp": 1, "pp": 1, "dp": 1, "zero": 0},
            "batch": {"global": 8, "micro": 2, "seq_len": 16},
            "train": {"steps": STEPS, "eval_every": 4, "eval_samples": 8, "balance_loss": 0.1},
            "optimizer": {"lr": 5e-3, "warmup_steps": 2, "grad_clip": 0.3, **optimizer},
        }
    )


def run(plan: Plan, other: tuple[CloseCall, ...] = ()) -> Reference:
    text = Text(plan)
    out = reference.train(plan, text, text, other)  # type: ignore[arg-type]  # samples by id, too
    found = out.losses, out.grad_norms, out.clipped_steps, out.validation_losses
    return Reference(*found, Path("w"), out.close_calls)


def layout(trained: Reference) -> RunOutcome:
    """A layout that trained to these losses, but for rounding."""
    losses = {step: loss + 3e-7 for step, loss in enumerate(trained.losses, 1)}
    end = RunExit(0, "ok", "")
    return RunOutcome("r", Path("r"), 1, end, losses, trained.validation_losses, None, ())


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Reference:
    """A run of which tokens are called close that are not by half, since few are in so short a one."""
    monkeypatch.setattr(reference_calls, "ROUNDINGS", 40_000)
    return run(plan_for())


def settled(trained: Reference, plain: Reference) -> Settled:
    return settle(layout(trained), plain, TOLERANCE, lambda other: run(plan_for(), other), 8)


def test_a_gap_is_counted_in_roundings_of_the_largest_score():
    """Of 4 experts 2 work: 8 x 3 epsilon between the second and the third is close, 256 x 3 is not."""
    tokens = [[3.0, 2.0, 2.0 - 24 * EPSILON, 1.0], [1.0, 2.0, 2.0 - 768 * EPSILON, 3.0], [2.0, 0.0, 1.0, 2.0]]
    model, scores = plan_for().model, torch.tensor(tokens).view(1, 3, 4)
    chosen = reference_model.choose(scores, 2)
    assert chosen.tolist() == [[[0, 1], [3, 1], [0, 3]]]
    calls = [*reference_calls.close_calls(model, [Routed(5, scores, chosen)], [70], 9, validation=True)]
    assert calls == [CloseCall(9, True, 5, 70, 0, pytest.approx(8.0))]
    (way,) = reference_calls.switched(calls, [69, 70], 9, validation=True).items()
    assert way == (5, [(1, 0)])
    assert reference_calls.switched(calls, [69, 70], 9) == {}
    assert reference_model.choose(scores, 2, [(0, 0)]).tolist() == [[[0, 2], [3, 1], [0, 3]]]


@pytest.mark.parametrize("validation", [False, True])
def test_a_token_that_rounding_sent_elsewhere_is_named_and_no_fault(plain: Reference, validation: bool):
    """In training it changes all that follows, in a validation that one loss alone."""
    for call in [call for call in plain.close_calls if call.validation == validation]:
        sent = run(plan_for(), (call,))
        at = parted(layout(sent), plain, TOLERANCE)
        if at is not None:
            break
    assert at is not None
    assert at >= call.at
    found = settled(sent, plain)
    assert [other.place for other in found.other] == [call.place]
    assert found.reference.losses == sent.losses != plain.losses or validation
    assert found.reference.validation_losses == sent.validation_losses != plain.validation_losses
    assert found.told() == ""


def test_two_tokens_are_found_one_after_the_other(plain: Reference):
    first = next(call for call in plain.close_calls if parts_at_once(call, plain))
    once = run(plan_for(), (first,))
    second = next(
        call for call in once.close_calls if call.step == STEPS and parts_at_once(call, once, first)
    )
    sent = run(plan_for(), (first, second))
    found = settled(sent, plain)
    assert first.step < second.step
    assert [call.place for call in found.other] == [first.place, second.place]
    assert found.reference.losses == sent.losses


def parts_at_once(call: CloseCall, of: Reference, *before: CloseCall) -> bool:
    return parted(layout(run(plan_for(), (*before, call))), of, TOLERANCE) == call.at


def test_a_fault_is_no_close_call(plain: Reference):
    """A wrong rate shows in the second step, and no token explains it."""
    wrong = run(plan_for(lr=5.1e-3))
    found = settled(wrong, plain)
    assert (found.reference, found.other, found.agrees, found.undecided) == (plain, (), False, False)
    assert parted(layout(wrong), plain, TOLERANCE) == (2, False)
    assert found.tried == len([call for call in plain.close_calls if call.step <= 2]) > 0
    assert f"; {found.tried} close calls of routers do not explain it" in found.told()


def test_what_follows_a_close_call_and_is_no_rounding_is_undecided(plain: Reference):
    """One token sent elsewhere, and another last loss: no fault is certain, and none passes."""
    first = next(call for call in plain.close_calls if parts_at_once(call, plain))
    sent = run(plan_for(), (first,))
    late = replace(sent, losses=(*sent.losses[:-1], sent.losses[-1] + 1e-3))
    found = settled(late, plain)
    assert first.step < STEPS
    assert ([call.place for call in found.other], found.undecided) == ([first.place], True)
    assert parted(layout(late), found.reference, TOLERANCE) == (STEPS, False)
    assert "DSF817" in found.told()


def test_where_not_all_calls_can_be_tried_nothing_is_decided(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reference_calls, "ROUNDINGS", 120_000)
    many = run(plan_for())
    found = settled(replace(many, losses=(*many.losses[:-1], many.losses[-1] + 1e-3)), many)
    assert (found.other, found.tried, found.undecided) == ((), 8, True)
    assert found.left == len(may_explain(many.close_calls, (STEPS, False))) - 8 > 0
    assert f"{found.left} were not tried" in found.told()


def test_in_16_bits_no_call_is_close():
    plan = plan_for()
    low = plan.model_copy(update={"train": plan.train.model_copy(update={"precision": "bf16", "steps": 1})})
    assert run(low).close_calls == ()


def never(other: tuple[CloseCall, ...]) -> Reference:
    raise AssertionError(f"{other} cannot explain it")


@pytest.mark.parametrize("loss", [9.0, math.nan, math.inf])
def test_what_no_token_can_do_is_a_fault_however_many_calls_are_close(plain: Reference, loss: float):
    trained = replace(plain, losses=(*plain.losses[:-1], loss))
    assert plain.close_calls
    settled = settle(layout(trained), plain, TOLERANCE, never, 8)
    assert not settled.agrees
    assert not settled.undecided
