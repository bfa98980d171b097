"""Checks of a run by itself, as often as `train.checks` says: ranks that should hold the same do."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.train.context import RankContext
from dsforge.train.copies import Copies, Difference
from dsforge.train.engine_protocol import Engine
from dsforge.train.finite import named
from dsforge.train.held import Piece, piece_of
from dsforge.train.module_watch import ModuleWatch
from dsforge.train.recorder import Recorder
from dsforge.train.world import control_group

_HINT = (
    "find what makes these ranks differ: a patched collective, other code or a broken device on their host; "
    "`dsforge verify` shows whether the layout is right, and a checkpoint before that step is good"
)


class Checks:
    """What the plan wants checked; every rank must make the same calls. Without any, nothing is done."""

    def __init__(
        self,
        context: RankContext,
        engine: Engine,
        recorder: Recorder,
        device: torch.device,
        hosts: Sequence[str],
    ) -> None:
        """`hosts`: those of the ranks, in order."""
        self._context = context
        self._engine = engine
        self._recorder = recorder
        self._hosts = hosts
        self._plan = context.plan.train.checks
        self._step = 0
        self._gradients = self._parameters = None
        self.watch: ModuleWatch | None = None
        """Sees in which module something is first not finite."""
        self.made = {"gradients": 0, "parameters": 0}
        """How often copies on several ranks were compared, and were equal."""
        self.dealt_out = 0
        """Gradients of which replicas hold parts, each element on one of them."""
        if self._plan.gradients_every or self._plan.parameters_every:
            group = control_group(context.plan.launch)
            split = frozenset(
                name for name, p in engine.parameters.items() if getattr(p, "tensor_model_parallel", False)
            )
            layout = context.plan.layout
            self._gradients, self._parameters = (
                Copies(layout, context.rank, group, split=split, ties_bitwise=engine.ties_bitwise)
                for _ in range(2)
            )
        if self._plan.modules:
            self.watch = ModuleWatch(engine.modules, engine.parameters, device)

    def told(self) -> dict[str, int]:
        """Return what was seen to be well, for the run's records."""
        return {**self.made, "dealt_out": self.dealt_out}

    def begin(self, step: int) -> None:
        """Take note of the step that begins."""
        self._step = step
        if self.watch is not None:
            self.watch.begin()

    def before_update(self) -> None:
        """Look at what parameters are about to be updated by, and compare it in steps whose turn it is.

        DsforgeError DSF807 names the first that differs, DSF810 one that ranks do not update exactly once.
        """
        every = self._plan.gradients_every
        is_turn = every > 0 and self._step % every == 0
        if not is_turn and self.watch is None:
            return
        pieces = self._engine.reduced_gradients()
        if self.watch is not None:
            self.watch.look_at_gradients(pieces)
        if is_turn:
            self._look("gradients", self._gradients, pieces, self._step)

    def parameters(self, step: int, *, is_kept: bool = False) -> None:
        """Compare parameters after a step whose turn it is, before the first, and where they are to be saved.

        DsforgeError DSF808 names the first that differs.
        """
        every = self._plan.parameters_every
        if not every or (step % every and not is_kept):
            return
        pieces = {name: piece_of(weight) for name, weight in self._engine.parameters.items()}
        self._look("parameters", self._parameters, pieces, step)

    def _look(self, what: str, copies: Copies | None, pieces: Mapping[str, Piece], step: int) -> None:
        assert copies is not None, "made for a plan that wants it"
        if not copies.is_ready:
            if (wrong := copies.meet(pieces)) is not None:
                raise self._error("DSF810", wrong)
            if what == "gradients":
                self.dealt_out = copies.dealt_out
        difference = copies.first_difference(pieces)
        if difference is None:
            self.made[what] += copies.compares
            return
        code, message = self._words(what, difference, step)
        ranks = difference.ranks
        facts: dict[str, Any] = {"step": step, "parameter": difference.name, "ranks": list(ranks)}
        self._recorder.event("ranks_differ", message, **facts, hosts=[self._hosts[rank] for rank in ranks])
        raise self._error(code, message)

    def _words(self, what: str, difference: Difference, step: int) -> tuple[str, str]:
        code, subject = "DSF808", difference.name
        when = f"after step {step}" if step else "before the first step"
        if what == "gradients":
            code, subject, when = "DSF807", f"the gradient of {difference.name}", f"in step {step}"
        layout = self._context.plan.layout
        who = named(list(difference.ranks), layout, self._hosts)
        how = f"on {who} from what {difference.most} other ranks hold"
        if not difference.most:
            how = f"{who} hold different ones, and no majority the same"
        also = f"; of {difference.more} others copies differ, too" if difference.more else ""
        return code, f"{subject} differs {when}: {how}{also}"

    def _error(self, code: str, message: str) -> DsforgeError:
        rank = self._context.rank
        where = Place(host=socket.gethostname(), rank=rank)
        return DsforgeError(code, message, where, _HINT, ExitCode.FINDINGS)
