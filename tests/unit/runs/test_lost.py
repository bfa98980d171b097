"""A run whose supervisor is dead: what its ranks left says how, when, and from where to go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dsforge.base.canonical import dumps
from dsforge.base.files import write_atomically
from dsforge.records.run_dir import RunDir
from dsforge.records.run_manifest import RunManifest
from dsforge.records.run_state import RunExit
from dsforge.records.streams import ExitRecord, MetricsLine, WorldReport
from dsforge.runs.details import show_run
from dsforge.runs.registry import list_runs
from tests.launch_support.plans import make_plan
from tests.launch_support.run_folders import NOBODY, make_run, write_lines
from tests.support.checkpoints import write_whole

MANIFEST = RunManifest(
    run_id="a",
    name="tiny",
    created_time=100.0,
    command=("dsforge", "launch", "r.yaml"),
    recipe_path="r.yaml",
    recipe_text="",
    recipe_sha256="",
    plan_sha256="",
    bundle_sha256={},
    versions={},
    revision=None,
    host="h",
    secret_names=(),
)


def lose(run_dir: RunDir, ended: int = 2, checkpoint_dir: Path | None = None) -> None:
    attempt = run_dir.attempt(1)
    steps = [MetricsLine(110.0 + n, n, 5.0, None, 1e-3, 9.0, 1.0, 1) for n in (1, 2, 3)]
    write_lines(attempt.metrics, *steps)
    reports = [WorldReport(101.0, rank, rank, 3, "h", 0, 9, 1, 10, 1) for rank in range(3)]
    exits = [ExitRecord(120.0 - rank, rank, 143, "lease_lost") for rank in range(ended)]
    write_lines(attempt.rank_stream(0), *reports, *exits)
    manifest = replace(MANIFEST, checkpoint_dir=str(checkpoint_dir) if checkpoint_dir else None)
    write_atomically(run_dir.manifest, manifest.to_json())
    write_atomically(run_dir.bundle / "plan.json", dumps(make_plan().to_json_value()))


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = make_run(tmp_path, "a", supervisor=NOBODY)
    run_dir.bundle.mkdir()
    return run_dir


def test_a_lost_run_says_how_when_and_how_to_go_on(run_dir: RunDir, tmp_path: Path):
    lose(run_dir)
    folder = write_whole(run_dir.checkpoints, make_plan(), 2)
    found = show_run(run_dir)
    assert (found.summary.state, found.summary.exit, found.summary.ended_time) == ("lost", None, 119.0)
    assert found.summary.loss is not None
    assert found.summary.loss.message == (
        "the supervisor (dsforge launch, pid 1) died; of its ranks ended 2 with code 143 (lease_lost), "
        "1 without an exit record"
    )
    assert list_runs(tmp_path)[0].loss == found.summary.loss
    assert found.way_on is not None
    assert found.way_on.words == f"no checkpoint of step 3 was made, the newest is that of step 2: {folder}"
    assert found.way_on.command == f"dsforge launch r.yaml checkpoint.resume={folder}"


def test_checkpoints_in_the_recipes_folder_are_found_there(run_dir: RunDir, tmp_path: Path):
    kept = tmp_path.parent / f"{tmp_path.name}-kept"
    lose(run_dir, checkpoint_dir=kept)
    folder = write_whole(kept, make_plan(), 3)
    way_on = show_run(run_dir).way_on
    assert way_on is not None
    assert (way_on.folder, way_on.command) == (folder, "dsforge launch r.yaml")


def test_a_loss_without_records_is_told_from_the_last_sign_of_life(run_dir: RunDir, tmp_path: Path):
    assert show_run(run_dir).way_on is None
    (silent,) = list_runs(tmp_path)
    assert silent.loss is not None
    assert (silent.loss.time, silent.ended_time) == (None, None)
    assert silent.loss.message.endswith("died; no rank had reported")
    lose(run_dir, ended=0)
    assert list_runs(tmp_path)[0].ended_time == 113.0
    rebooted = make_run(tmp_path, "b", supervisor=NOBODY, boot_id="another")
    loss = show_run(rebooted).summary.loss
    assert loss is not None
    assert "died with the machine, which has restarted since" in loss.message


def test_only_a_run_that_ended_early_has_a_way_on(tmp_path: Path):
    for state, wanted in (("failed", True), ("stopped", True), ("succeeded", False)):
        run_dir = make_run(tmp_path, state, state=state, exit=RunExit(1, "rank_failed", "Oops"))
        run_dir.bundle.mkdir()
        lose(run_dir)
        assert (show_run(run_dir).way_on is not None) is wanted
