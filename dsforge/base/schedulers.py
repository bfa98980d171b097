"""The batch schedulers, by the name that a recipe has for them."""

from __future__ import annotations

from dsforge.base import pbs, slurm
from dsforge.base.batch import Scheduler

SCHEDULERS: dict[str, Scheduler] = {one.launcher: one for one in (slurm.SCHEDULER, pbs.SCHEDULER)}
