"""A program that leaves with code 0 has ended well where it made its steps or saved where it stopped."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dsforge.launch.follow import Follower
from dsforge.launch.program_end import ProgramEnd
from dsforge.launch.types import LaunchRequest
from dsforge.plan.resolve import make_plan
from dsforge.recipe.load import load_recipe
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import ExitRecord, MetricsLine
from tests.launch_support.bundles import make_bundle
from tests.launch_support.run_folders import write_lines

RECIPE = """\
version: 1
model: {arch: gpt, layers: 2, hidden: 64, heads: 8, vocab: 50257}
cluster: {nodes: 1, gpus_per_node: 1, gpu: a100-sxm-80gb}
batch: {global: 8, micro: 1, seq_len: 64}
train: {steps: 100, precision: bf16}
data: {train: data/a, tokenizer: data/a.json}
checkpoint: {dir: kept, resume: RESUME}
trainer: external
external: {flavour: FLAVOUR, path: x}
"""
EXITING = "Unable to load optimizer from checkpoint, exiting ..."
SAID = "saved no checkpoint there: its log says why"
MARK = "latest_checkpointed_iteration.txt"


def ended(
    root: Path,
    steps: list[int],
    *,
    before: str | None = None,
    after: str | None = None,
    flavour: str = "megatron-lm",
    mark: str = MARK,
    resume: str = "auto",
) -> tuple[str, int, str] | None:
    """Return kind, code and message of a run's end with a checkpoint's mark before it and after it."""
    path = root / "recipe.yaml"
    path.write_text(RECIPE.replace("FLAVOUR", flavour).replace("RESUME", resume))
    plan = make_plan(load_recipe(path, [], None))
    kept = root / "kept"
    kept.mkdir()
    if before is not None:
        (kept / mark).write_text(before)
    asked = LaunchRequest(plan, make_bundle(plan), root / "runs", root, "recipe.yaml", "", (), {})
    end = ProgramEnd(asked, kept)
    attempt = AttemptDir(root / "attempt-1")
    attempt.path.mkdir()
    write_lines(attempt.metrics, *(MetricsLine(time.time(), s, 1.0, None, None, None, 0.1, 0) for s in steps))
    write_lines(attempt.rank_stream(0), ExitRecord(time.time(), 0, 0, "ok", None, None, (EXITING,)))
    if after is not None:
        time.sleep(0.01)
        (kept / mark).write_text(after)
    follower = Follower(plan, attempt)
    follower.poll()
    cause = end.fault(follower)
    if cause is None:
        return None
    assert cause.tail == (EXITING,)  # the reason that the program gives
    return cause.kind.value, cause.code, cause.message


def test_one_that_leaves_while_it_loads_its_checkpoint(tmp_path: Path):
    assert ended(tmp_path, [], before="50") == (
        "before_first_step",
        4,
        "every rank ended with code 0, but the program made no step: its log says why",
    )


def test_one_that_leaves_on_the_way(tmp_path: Path):
    found = ended(tmp_path, [10, 20], before="5", after="15")
    assert found == (
        "rank_failed",
        1,
        f"every rank ended with code 0 after step 20 of 100, and the program {SAID}",
    )


@pytest.mark.parametrize("resume", ["auto", "never"])
def test_an_older_runs_checkpoint_is_not_this_ones(tmp_path: Path, resume: str):
    assert ended(tmp_path, [10], before="90", resume=resume) is not None


@pytest.mark.parametrize(
    ("steps", "before", "after"),
    [
        ([50, 100], None, None),
        ([40, 80], None, None),  # it tells of every fortieth step
        ([60, 90], "50", None),
        ([10, 20], None, "20"),  # it was told to end early
        ([], "100", None),  # nothing is left to do
    ],
)
def test_one_that_has_done_what_it_was_started_for(
    tmp_path: Path, steps: list[int], before: str | None, after: str | None
):
    assert ended(tmp_path, steps, before=before, after=after) is None


def test_the_step_is_read_from_what_deepspeed_writes(tmp_path: Path):
    name = {"flavour": "gpt-neox", "mark": "latest"}
    assert ended(tmp_path, [10], after="global_step10", **name) is None
