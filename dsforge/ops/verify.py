"""`verify`: proof that a layout trains to the same loss as one plain process."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dsforge.base.canonical import loads
from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.launch.types import OnEvent, RunOutcome
from dsforge.ops.close_calls import Settled, parted, settle
from dsforge.ops.reference_run import LEAST_CLIPPED, LEAST_FALL, Reference, run_helper, run_reference
from dsforge.ops.shrink import Change, shrink
from dsforge.ops.smoke import shrunk_recipe, with_changes
from dsforge.ops.start import StartOptions, start
from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan
from dsforge.recipe.load import LoadedRecipe
from dsforge.recipe.sections import OptimizerSection
from dsforge.records import environment
from dsforge.records.close_calls import CloseCall

TOLERANCE = {"fp32": 1e-5, "bf16": 5e-3, "fp16": 1e-3}
"""Largest loss difference allowed (nats a token). In 16 bits sums round in another order in every layout."""
_TRIES = 6
_RATE_STEP = 1.5


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """Layout against reference. Differences are None when the layout's run did not end well."""

    passed: bool
    undecided: bool
    """Not the same, for all that is known by rounding alone: another seed may decide."""
    why: str
    tolerance: float
    losses: tuple[float, ...]
    reference_losses: tuple[float, ...]
    validation_losses: dict[int, float]
    reference_validation_losses: dict[int, float]
    max_abs_loss_diff: float | None
    max_abs_validation_diff: float | None
    """None also where the recipe does not validate."""
    max_abs_param_diff: float | None
    clipped_steps: int
    steps: int
    close_calls: tuple[CloseCall, ...]
    """Tokens that the reference sent to the other of two experts, between which rounding chooses."""
    layout: dict[str, Any]
    not_exercised: tuple[str, ...]
    """Kinds of parallelism that the recipe has and these ranks did not: TP, PP, CP, DP, EP or VP."""
    changes: tuple[Change, ...]
    run_dir: Path

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        return {
            "passed": self.passed,
            "undecided": self.undecided,
            "why": self.why,
            "tolerance": self.tolerance,
            "losses": list(self.losses),
            "reference_losses": list(self.reference_losses),
            "validation_losses": {str(k): v for k, v in self.validation_losses.items()},
            "reference_validation_losses": {str(k): v for k, v in self.reference_validation_losses.items()},
            "max_abs_loss_diff": self.max_abs_loss_diff,
            "max_abs_validation_diff": self.max_abs_validation_diff,
            "max_abs_param_diff": self.max_abs_param_diff,
            "clipped_steps": self.clipped_steps,
            "steps": self.steps,
            "close_calls": [asdict(call) for call in self.close_calls],
            "layout": self.layout,
            "not_exercised": list(self.not_exercised),
            "changed": [change.as_dict() for change in self.changes],
            "run": str(self.run_dir),
        }


def verify(
    loaded: LoadedRecipe,
    options: StartOptions,
    on_event: OnEvent,
    *,
    max_ranks: int,
    steps: int,
    references: Path | None = None,
) -> VerifyResult:
    """Train the shrunken layout and the reference on the same samples and compare.

    In `references` what the one process computed is kept, for other layouts of the same model and batch.
    DsforgeError when the recipe is refused, or when no setting was found that proves something.
    """
    original = make_plan(loaded, options.allow)
    if original.external is not None:
        raise DsforgeError(
            "DSF072",
            "verify compares runs from the same weights and samples, and an external program draws its own",
            hint="`dsforge smoke RECIPE` trains it for a few steps",
            exit_code=ExitCode.FINDINGS,
        )
    small = shrink(loaded.recipe, original, max_ranks, steps=steps, learn_fast=True, purpose="verify")
    with tempfile.TemporaryDirectory(prefix="dsforge-verify-") as name:
        work = Path(name)
        kept = references or work
        recipe, plan, reference, raised = _telling_reference(shrunk_recipe(loaded, small), options, kept)
        dump = work / "parameters"
        dump.mkdir()
        dumping = {**options.extra_environ, environment.DUMP_PARAMETERS: str(dump)}
        options = replace(options, extra_environ=dumping)
        plan, outcome = start(recipe, options, on_event)
        settled = Settled(reference)
        if _incomparable(outcome, reference) is None:
            again = partial(run_reference, plan, kept, options.environ)
            tolerance = TOLERANCE[plan.train.precision]
            settled = settle(outcome, reference, tolerance, again, plan.batch.global_size)
        ended = outcome.exit.code == 0
        parameters = _parameter_difference(dump, settled.reference, work) if ended else None
    return _judge(plan, outcome, settled, parameters, (*small.changes, *raised), small.lost)


def _telling_reference(
    recipe: LoadedRecipe, options: StartOptions, references: Path
) -> tuple[LoadedRecipe, Plan, Reference, list[Change]]:
    """Change rate and clipping until the reference's run would show a fault, and only a fault."""
    began = recipe.recipe.optimizer
    why = f"the loss must fall by {LEAST_FALL} and clipping act in {LEAST_CLIPPED:.0%} of the steps"
    second_best: tuple[LoadedRecipe, Plan, Reference] | None = None
    for _ in range(_TRIES):
        plan = make_plan(recipe, options.allow)
        reference = run_reference(plan, references, options.environ)
        optimizer = recipe.recipe.optimizer
        if reference.learns and reference.clips:
            if reference.calm:
                return recipe, plan, reference, _changes(began, optimizer, why)
            if reference.steady and second_best is None:
                second_best = recipe, plan, reference
        changes: dict[str, float] = {}
        if not reference.clips:
            changes["grad_clip"] = float(f"{min(reference.grad_norms) / 2:.2g}")
        if not reference.calm:
            changes["lr"] = float(f"{optimizer.lr / _RATE_STEP**2:.2g}")
        elif not reference.learns:
            changes["lr"] = float(f"{optimizer.lr * _RATE_STEP:.2g}")
        recipe = with_changes(recipe, "optimizer", **changes)
    if second_best is not None:
        recipe, plan, reference = second_best
        return recipe, plan, reference, _changes(began, recipe.recipe.optimizer, why)
    raise DsforgeError(
        "DSF070",
        f"no setting made the reference's loss fall by {LEAST_FALL} with clipping and calm gradients",
        hint="more --steps",
        exit_code=1,
    )


def _changes(began: OptimizerSection, used: OptimizerSection, why: str) -> list[Change]:
    return [
        Change(f"optimizer.{key}", getattr(began, key), getattr(used, key), why)
        for key in ("lr", "grad_clip")
        if getattr(began, key) != getattr(used, key)
    ]


def _parameter_difference(dump: Path, reference: Reference, work: Path) -> float:
    out = work / "difference.json"
    words = [sys.executable, "-m", "dsforge.train.compare", "--dumped", str(dump)]
    words += ["--reference", str(reference.weights), "--out", str(out)]
    run_helper(words, None, "parameters could not be compared")
    return float(loads(out.read_text("utf-8"))["max_abs_param_diff"])


def _incomparable(outcome: RunOutcome, reference: Reference) -> str | None:
    """Return why the layout's losses cannot be held against the reference's."""
    if outcome.exit.code != 0:
        return outcome.exit.message
    if len(outcome.losses) != len(reference.losses):
        return f"{len(outcome.losses)} steps, the reference made {len(reference.losses)}"
    if outcome.validation_losses.keys() != reference.validation_losses.keys():
        after = [sorted(some) for some in (outcome.validation_losses, reference.validation_losses)]
        return f"validated after steps {after[0]}, the reference after {after[1]}"
    return None


def _judge(
    plan: Plan,
    outcome: RunOutcome,
    settled: Settled,
    parameters: float | None,
    changes: tuple[Change, ...],
    lost: tuple[str, ...],
) -> VerifyResult:
    losses, reference = tuple(outcome.losses.values()), settled.reference
    tolerance = TOLERANCE[plan.train.precision]
    difference = validation = None
    why, passed = _incomparable(outcome, reference), False
    if why is None:
        difference = max(abs(a - b) for a, b in zip(losses, reference.losses, strict=True))
        apart = [
            abs(loss - reference.validation_losses[at]) for at, loss in outcome.validation_losses.items()
        ]
        validation = max(apart, default=None)
        judged = "" if validation is None else f", of a validation {validation:.2e}"
        why = f"largest loss difference {difference:.2e}{judged}, tolerance {tolerance:.0e}{settled.told()}"
        passed = parted(outcome, reference, tolerance) is None
    layout = plan.layout
    return VerifyResult(
        passed=passed,
        undecided=settled.undecided,
        why=why,
        tolerance=tolerance,
        losses=losses,
        reference_losses=reference.losses,
        validation_losses=outcome.validation_losses,
        reference_validation_losses=reference.validation_losses,
        max_abs_loss_diff=difference,
        max_abs_validation_diff=validation,
        max_abs_param_diff=parameters,
        clipped_steps=reference.clipped_steps,
        steps=plan.train.steps,
        close_calls=settled.other,
        layout={
            "trainer": plan.trainer,
            "tp": layout.tp,
            "pp": layout.pp,
            "dp": layout.dp,
            "cp": layout.cp,
            "ep": layout.ep,
            "vp": layout.vp,
            "zero": layout.zero,
            "schedule": layout.schedule,
            "sequence_parallel": layout.sequence_parallel,
            "offload_optimizer": plan.offload.optimizer,
            "offload_parameters": plan.offload.parameters,
            "precision": plan.train.precision,
            "recompute": plan.train.recompute,
            "recompute_every": plan.train.recompute_every,
            "dropout": plan.train.dropout,
            "attention_dropout": plan.train.attention_dropout,
            "arch": plan.model.arch,
            "tied": plan.model.tied,
        },
        not_exercised=lost,
        changes=changes,
        run_dir=outcome.run_dir,
    )
