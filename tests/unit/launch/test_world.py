from __future__ import annotations

import os
from dataclasses import replace

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.launch.world import check_gpus, check_here, planned_hosts, report_difference, visible_gpus
from dsforge.records.gpus import ChosenGpus
from dsforge.records.streams import WorldReport
from tests.launch_support.plans import make_plan


@pytest.fixture
def smi(tmp_path):
    """An environment whose nvidia-smi lists four GPUs, one of them with a MIG instance."""
    program = tmp_path / "nvidia-smi"
    listing = "\n".join(
        [*(f"echo 'GPU {i}: NVIDIA H200 (UUID: GPU-{i})'" for i in range(4)), "echo '  MIG 1g'"]
    )
    program.write_text(f"#!/bin/sh\n{listing}\n")
    program.chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("chosen", "count"),
    [
        (None, 4),
        ("", 0),
        ("-1", 0),
        ("2", 1),
        ("0,1,3", 3),
        ("0,9,1", 1),
        ("GPU-a,GPU-b", 2),
        ("0,1,2,3,0", 4),
    ],
)
def test_visible_gpus(smi, chosen, count):
    environ = smi if chosen is None else {**smi, "CUDA_VISIBLE_DEVICES": chosen}
    assert visible_gpus(environ) == count


def test_without_a_driver_no_gpu_is_visible(tmp_path):
    assert visible_gpus({"PATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": "0,1"}) == 0


def test_the_planned_world_passes():
    check_here(planned_hosts(make_plan(world_size=2), "localhost slots=2\n"))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("localhost slots=1\n", "DSF041"),
        ("one slots=2\nother slots=2\n", "DSF041"),
        ("localhost slots=2\nother slots=2\n", "DSF040"),
        ("surely-not-this-machine slots=2\n", "DSF202"),
        ("localhost\n", "DSF040"),
    ],
)
def test_another_world_is_refused(text, code):
    with pytest.raises(DsforgeError) as caught:
        check_here(planned_hosts(make_plan(world_size=2), text))
    assert caught.value.code == code


def test_too_few_gpus_are_an_environment_error(smi):
    plan = make_plan(world_size=2, accelerator="cuda")
    check_gpus(plan, smi)
    check_gpus(make_plan(world_size=99), {})
    with pytest.raises(DsforgeError, match="needs 2 GPUs on this machine, 1 are visible") as caught:
        check_gpus(plan, {**smi, "CUDA_VISIBLE_DEVICES": "3"})
    assert caught.value.exit_code == 3


def test_chosen_gpus_must_be_there_and_the_users_list_does_not_count(smi):
    plan = make_plan(world_size=2, accelerator="cuda")
    hidden = {**smi, "CUDA_VISIBLE_DEVICES": "0"}
    installed = visible_gpus(smi)
    check_gpus(plan, hidden, ChosenGpus(((0, installed - 1),)))
    with pytest.raises(DsforgeError, match=f"chooses GPU {installed} of this machine, which has {installed}"):
        check_gpus(plan, smi, ChosenGpus(((0, installed),)))


GOOD = WorldReport(1.0, 1, 1, 2, "a", 0, 11, 1, 12, 1)
FIRST = WorldReport(1.0, 0, 0, 2, "a", 0, 9, 1, 10, 1)


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (GOOD, None),
        (replace(GOOD, world_size=1), "in a world of 1, the plan has 2"),
        (replace(GOOD, rank=2), "not one of the plan's ranks 0 to 1"),
        (replace(GOOD, rank=0, local_rank=0), "started twice, first as pid 9"),
        (replace(GOOD, local_rank=0), "the plan puts it at local rank 1 of node 0"),
        (replace(GOOD, node=1), "local rank 1 of node 1"),
        (replace(GOOD, host="b"), "says node 0, which is host a"),
    ],
)
def test_reports_are_held_against_the_plan(report, words):
    difference = report_difference(make_plan(world_size=2), report, {0: FIRST})
    assert difference is None if words is None else words in difference
