from __future__ import annotations

import hashlib
import os
import re
import subprocess
from dataclasses import replace

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.launch import facts
from dsforge.launch.create import create_run
from dsforge.launch.run import launch_run
from dsforge.launch.types import LaunchRequest
from dsforge.records import checkpoint_lock
from dsforge.records.run_manifest import Revision, read_run_manifest
from tests.launch_support.bundles import make_bundle
from tests.launch_support.plans import make_plan


@pytest.fixture
def request_(tmp_path):
    plan = make_plan(name="my run", env_from=("TOKEN",))
    return LaunchRequest(
        plan=plan,
        bundle=make_bundle(plan),
        runs_root=tmp_path / "deep" / "runs",
        recipe_root=tmp_path,
        recipe_path="my.yaml",
        recipe_text="version: 1\n",
        command=("dsforge", "launch", "my.yaml"),
        environ={"TOKEN": "hush"},
    )


def test_a_run_keeps_what_it_runs(request_):
    run_dir = create_run(request_)
    assert re.fullmatch(r"my-run-\d{8}-\d{6}-[0-9a-f]{4}", run_dir.path.name)
    manifest = read_run_manifest(run_dir.manifest)
    assert manifest is not None
    assert manifest.recipe_sha256 == hashlib.sha256(b"version: 1\n").hexdigest()
    script = (run_dir.bundle / "launch.sh").read_bytes()
    assert manifest.bundle_sha256["launch.sh"] == hashlib.sha256(script).hexdigest()
    assert sorted(manifest.bundle_sha256) == [
        "ds_config.json",
        "environment",
        "hostfile",
        "launch.sh",
        "plan.json",
    ]
    assert manifest.secret_names == ("TOKEN",)
    assert all(b"hush" not in path.read_bytes() for path in run_dir.path.rglob("*") if path.is_file())
    assert {"python", "dsforge", "torch", "deepspeed"} <= set(manifest.versions)


def test_two_runs_of_one_second_do_not_meet(request_):
    assert create_run(request_).path != create_run(request_).path


def test_a_folder_that_cannot_be_made_is_an_environment_error(request_, tmp_path):
    (tmp_path / "deep").write_text("a file where the runs should go")
    with pytest.raises(DsforgeError, match="cannot be written") as caught:
        create_run(request_)
    assert (caught.value.code, caught.value.exit_code) == ("DSF209", 3)


def test_what_the_disk_cuts_short_leaves_no_folder(request_, tmp_path):
    (tmp_path / "kept").write_text("a file where the checkpoints should go")
    plan = make_plan(checkpoint_dir="kept")
    with pytest.raises(DsforgeError) as caught:
        create_run(replace(request_, plan=plan, bundle=make_bundle(plan)))
    assert caught.value.code == "DSF209"
    assert list((tmp_path / "deep" / "runs").iterdir()) == []


def test_a_checkpoint_folder_in_use_starts_nothing(request_, tmp_path):
    plan = make_plan(checkpoint_dir="kept")
    request = replace(request_, plan=plan, bundle=make_bundle(plan), environ=dict(os.environ))
    (tmp_path / "kept").mkdir()
    with checkpoint_lock.hold(tmp_path / "kept"), pytest.raises(DsforgeError) as caught:
        launch_run(request, lambda _: None)
    assert caught.value.code == "DSF336"
    assert not (tmp_path / "deep").exists()


def test_the_revision_tells_a_dirty_tree(tmp_path):
    assert facts.revision(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    (tmp_path / "recipe.yaml").write_text("one")
    for arguments in (["init", "-q"], ["add", "recipe.yaml"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *arguments], check=True)
    clean = facts.revision(tmp_path)
    assert clean is not None
    assert re.fullmatch("[0-9a-f]{40}", clean.commit)
    assert not clean.dirty
    (tmp_path / "recipe.yaml").write_text("two")
    assert facts.revision(tmp_path) == Revision(clean.commit, dirty=True)
