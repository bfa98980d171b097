from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.launch.types import LaunchRequest
from dsforge.launch.way_on import find_way_on, resume_command
from dsforge.records.run_dir import RunDir
from tests.launch_support.bundles import make_bundle
from tests.launch_support.plans import make_plan
from tests.support.checkpoints import write_whole


@pytest.fixture
def request_in(tmp_path):
    def make(*words: str, checkpoint_dir: str | None = None, resume: str = "auto") -> LaunchRequest:
        plan = make_plan(checkpoint_dir=checkpoint_dir)
        plan = plan.model_copy(update={"checkpoint": plan.checkpoint.model_copy(update={"resume": resume})})
        return LaunchRequest(
            plan=plan,
            bundle=make_bundle(plan),
            runs_root=tmp_path / "runs",
            recipe_root=tmp_path,
            recipe_path="r.yaml",
            recipe_text="",
            command=("dsforge", *words),
            environ={},
        )

    return make


FOLDER = Path("/a b/step-00000004")


def test_a_folder_of_the_runs_own_is_named(request_in):
    words = ("launch", "r.yaml", "checkpoint.resume=old", "train.steps=9")
    command = resume_command(request_in(*words), FOLDER)
    assert command == "dsforge launch r.yaml train.steps=9 'checkpoint.resume=/a b/step-00000004'"


def test_a_folder_of_the_recipe_is_found_again(request_in):
    assert (
        resume_command(request_in("launch", "r.yaml", checkpoint_dir="ckpt"), FOLDER)
        == "dsforge launch r.yaml"
    )
    never = request_in("launch", "r.yaml", checkpoint_dir="ckpt", resume="never")
    assert resume_command(never, FOLDER) == "dsforge launch r.yaml checkpoint.resume=auto"


def test_what_is_no_launch_has_no_such_command(request_in):
    assert resume_command(request_in("smoke", "r.yaml"), FOLDER) is None


def test_a_newest_checkpoint_that_is_older_than_the_steps_is_said_to_be(request_in, tmp_path):
    request, run_dir = request_in("launch", "r.yaml"), RunDir(tmp_path / "runs" / "a")
    nothing = find_way_on(request, run_dir, None)
    assert (nothing.words, nothing.command) == ("no step was made", "dsforge launch r.yaml")
    assert find_way_on(request, run_dir, 7).words == "no checkpoint of its 7 steps was made"
    folder = write_whole(run_dir.checkpoints, request.plan, 4)
    assert find_way_on(request, run_dir, 4).words == f"the checkpoint of step 4 is {folder}"
    late = find_way_on(request, run_dir, 7)
    assert late.words == f"no checkpoint of step 7 was made, the newest is that of step 4: {folder}"
    assert late.after("stopped by SIGTERM") == (
        f"stopped by SIGTERM; {late.words}\ngo on with: dsforge launch r.yaml checkpoint.resume={folder}"
    )
    assert (late.step, late.folder) == (4, folder)
