"""The one process that `verify` compares layouts with: started, and what it computed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path

from dsforge.base.canonical import dumps, loads
from dsforge.base.errors import DsforgeError
from dsforge.ops.references import kept, key
from dsforge.plan.types import Plan
from dsforge.records import environment
from dsforge.records.close_calls import CloseCall
from dsforge.records.typed import build

LEAST_FALL = 1.0
LEAST_CLIPPED = 0.8
_CALM = 1.5
_TIMEOUT_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class Reference:
    """What the plain single process computed."""

    losses: tuple[float, ...]
    grad_norms: tuple[float, ...]
    clipped_steps: int
    validation_losses: dict[int, float]
    weights: Path
    """File of its last ones."""
    close_calls: tuple[CloseCall, ...] = ()

    @property
    def learns(self) -> bool:
        """The loss falls by 1.0: weights, gradients and optimizer matter to the result."""
        return self.losses[0] - self.losses[-1] >= LEAST_FALL

    @property
    def clips(self) -> bool:
        """Clipping acts in 80 % of the steps: a wrong gradient norm would show."""
        return self.clipped_steps >= LEAST_CLIPPED * len(self.losses)

    @property
    def calm(self) -> bool:
        """No gradient exceeds the first ones: where they jump, rounding alone changes the losses."""
        return max(self.grad_norms) <= _CALM * max(self.grad_norms[:2])

    @property
    def steady(self) -> bool:
        """None exceeds all before it as far: gradients that grow slowly do so at any rate (Gemma's)."""
        largest = accumulate(self.grad_norms, max)
        return all(now <= _CALM * before for before, now in zip(largest, self.grad_norms[1:], strict=False))


def run_reference(
    plan: Plan, references: Path, environ: Mapping[str, str], other: Sequence[CloseCall] = ()
) -> Reference:
    """Return what one process computes of a plan, from the folder where that is kept already.

    The close calls of `other` are decided the other way.
    """
    from dsforge.data.prepare import builtin_corpus

    assert plan.data.builtin_vocab is not None
    corpus = str(builtin_corpus(plan.data.builtin_vocab))
    threads = environ.get("OMP_NUM_THREADS", "1")

    def compute(folder: Path) -> None:
        (folder / "plan.json").write_text(dumps(plan.to_json_value()), "utf-8")
        words = [sys.executable, "-m", "dsforge.train.reference"]
        words += ["--plan", str(folder / "plan.json"), "--out", str(folder)]
        words += ["--other", dumps([asdict(call) for call in other])]
        found = {**environ, environment.CORPUS: corpus, "OMP_NUM_THREADS": threads}
        run_helper(words, found, "the reference failed")

    folder = kept(references, key(plan, corpus, other), compute)
    result = loads((folder / "losses.json").read_text("utf-8"))
    return Reference(
        tuple(result["losses"]),
        tuple(result["grad_norms"]),
        int(result["clipped_steps"]),
        {int(step): loss for step, loss in result["validation_losses"].items()},
        folder / "params.safetensors",
        tuple(build(CloseCall, call) for call in result["close_calls"]),
    )


def run_helper(words: list[str], environ: Mapping[str, str] | None, what: str) -> None:
    """Run a helper process that needs torch; DsforgeError DSF071 with its last line when it fails."""
    try:
        done = subprocess.run(
            words, env=environ, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise DsforgeError("DSF071", f"{what}: no end after {_TIMEOUT_SECONDS} s", exit_code=3) from None
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise DsforgeError("DSF071", f"{what}: {last[0]}", hint="see `dsforge doctor`", exit_code=3)
