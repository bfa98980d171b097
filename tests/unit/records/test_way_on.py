from __future__ import annotations

from pathlib import Path

from dsforge.records.way_on import Beginning, find_way_on, resume_command
from tests.launch_support.plans import make_plan
from tests.support.checkpoints import write_whole

FOLDER = Path("/a b/step-00000004")


def begun(
    *words: str, folder: Path = FOLDER.parent, names_folder: bool = False, resume: str = "auto"
) -> Beginning:
    return Beginning(("dsforge", *words), folder, names_folder, resume)


def test_a_folder_of_the_runs_own_is_named():
    words = ("launch", "r.yaml", "checkpoint.resume=old", "train.steps=9")
    command = resume_command(begun(*words), FOLDER)
    assert command == "dsforge launch r.yaml train.steps=9 'checkpoint.resume=/a b/step-00000004'"


def test_a_folder_of_the_recipe_is_found_again():
    named = begun("launch", "r.yaml", names_folder=True)
    assert resume_command(named, FOLDER) == "dsforge launch r.yaml"
    never = begun("launch", "r.yaml", names_folder=True, resume="never")
    assert resume_command(never, FOLDER) == "dsforge launch r.yaml checkpoint.resume=auto"


def test_what_is_no_launch_has_no_such_command():
    assert resume_command(begun("smoke", "r.yaml"), FOLDER) is None


def test_a_newest_checkpoint_that_is_older_than_the_steps_is_said_to_be(tmp_path: Path):
    beginning = begun("launch", "r.yaml", folder=tmp_path)
    nothing = find_way_on(beginning, None)
    assert (nothing.words, nothing.command) == ("no step was made", "dsforge launch r.yaml")
    assert find_way_on(beginning, 7).words == "no checkpoint of its 7 steps was made"
    folder = write_whole(tmp_path, make_plan(), 4)
    assert find_way_on(beginning, 4).words == f"the checkpoint of step 4 is {folder}"
    late = find_way_on(beginning, 7)
    assert late.words == f"no checkpoint of step 7 was made, the newest is that of step 4: {folder}"
    assert late.after("stopped by SIGTERM") == (
        f"stopped by SIGTERM; {late.words}\ngo on with: dsforge launch r.yaml checkpoint.resume={folder}"
    )
    assert (late.step, late.folder) == (4, folder)
