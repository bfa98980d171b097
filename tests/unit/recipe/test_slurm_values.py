"""`launch.slurm.extra` takes what leaves the planned ranks as they are, and nothing else."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from dsforge.recipe.slurm_values import SlurmOption

OPTION = TypeAdapter(SlurmOption)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("--nodes=2", "nodes"),
        ("--tasks-per-node=1", "tasks-per-node"),
        ("--ntasks-per-n=1", "ntasks-per-node"),
        ("--ntasks-per-gpu=2", "ntasks-per-gpu"),
        ("--gpus=16", "gpus"),
        ("--gpus-per-task=h100:1", "gpus-per-task"),
        ("--gpu-bind=closest", "gpu-bind"),
        ("--gres=gpu:4", "gres"),
        ("--gre=license:1,gpu:h100:4", "gres"),
        ("--gres=gres/gpu=4", "gres"),
        ("--tres-per-task=gres/gpu:1", "tres-per-task"),
        ("--array=0-3", "array"),
        ("--arr=0-3", "array"),
        ("--test-only", "test-only"),
        ("--nodelist=node[1-4]", "nodelist"),
        ("--distribution=cyclic", "distribution"),
        ("--overcommit", "overcommit"),
        ("--help", "help"),
        ("--wait", "wait"),
        ("--output=log-%j.txt", "output"),
        ("--err=log-%j.txt", "error"),
        ("--clusters=other", "clusters"),
        ("--quiet", "quiet"),
    ],
)
def test_an_option_that_would_undo_the_plan_is_refused_by_its_whole_name(text, named):
    with pytest.raises(ValidationError, match=f"is --{named}[, ]"):
        OPTION.validate_python(text)


@pytest.mark.parametrize("text", ["-N4", "-n 8", "-w node1", "-a0-3", "nodes=4", "--exclusive\n--nodes=2"])
def test_short_options_and_other_text_are_refused(text):
    with pytest.raises(ValidationError, match="pattern"):
        OPTION.validate_python(text)


@pytest.mark.parametrize(
    "text",
    [
        "--exclusive",
        "--mem=0",
        "--mail-type=END,FAIL",
        "--gres=license:1",
        "--gres-flags=enforce-binding",
        "--exclude=node7",
        "--reservation=week",
        "--wait-all-nodes=1",
        "--hint=nomultithread",
        "--time-min=30",
    ],
)
def test_other_options_pass(text):
    assert OPTION.validate_python(text) == text
