import hashlib
import json

import pytest

from dsforge.records.checkpoint import (
    MANIFEST_NAME,
    CheckpointManifest,
    FileEntry,
    NotWhole,
    ParameterEntry,
    file_digest,
    find_damage,
    read_manifest,
    step_folders,
    step_number,
    whole_checkpoints,
)


def write(root, step, content=b"weights"):
    folder = root / f"step-{step:08d}"
    (folder / "state").mkdir(parents=True)
    (folder / "state" / "w.pt").write_bytes(content)
    manifest = CheckpointManifest(
        step=step,
        consumed_samples=4 * step,
        run_id="run-1",
        trainer="forge",
        layout={"tp": 1},
        plan_sha256="0" * 64,
        data={"seed": 1},
        files={"state/w.pt": FileEntry(len(content), hashlib.blake2b(content, digest_size=16).hexdigest())},
        parameters=(ParameterEntry("head.weight", (61, 16), 0, 1),),
        model={"heads": 4},
    )
    (folder / MANIFEST_NAME).write_text(manifest.to_json())
    return folder, manifest


def change(folder, **values):
    note = folder / MANIFEST_NAME
    note.write_text(json.dumps({**json.loads(note.read_text()), **values}))


def test_what_was_written_is_read(tmp_path):
    folder, manifest = write(tmp_path, 5)
    assert read_manifest(folder) == manifest


def test_the_digest_is_blake2b_of_the_bytes(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    # RFC 7693's BLAKE2b with 16 bytes of output; the value of `b2sum -l 128 /dev/null`.
    assert file_digest(tmp_path / "empty") == "cae66941d9efbd404e4d88758ea67670"


@pytest.mark.parametrize(
    ("harm", "file", "reason"),
    [
        (lambda f: (f / "state/w.pt").write_bytes(b"weight"), "w.pt", "has 6 bytes, 7 were written"),
        (lambda f: (f / "state/w.pt").unlink(), "w.pt", "is missing"),
        (lambda f: (f / MANIFEST_NAME).unlink(), MANIFEST_NAME, "is missing"),
        (lambda f: (f / MANIFEST_NAME).write_text("{"), MANIFEST_NAME, "is not JSON"),
        (lambda f: (f / MANIFEST_NAME).write_bytes(b"\xff"), MANIFEST_NAME, "is not JSON"),
        (lambda f: (f / MANIFEST_NAME).write_text("[]"), MANIFEST_NAME, "has schema version None"),
        (lambda f: change(f, schema_version=1), MANIFEST_NAME, "has schema version 1, this build reads 3"),
        (lambda f: change(f, more=1), MANIFEST_NAME, "lacks a field, or has one"),
        (lambda f: change(f, files=None), MANIFEST_NAME, "lacks a field, or has one"),
        (lambda f: change(f, step="5"), MANIFEST_NAME, "of another type"),
        (lambda f: change(f, step=True), MANIFEST_NAME, "of another type"),
        (lambda f: change(f, data={"seed": None}), MANIFEST_NAME, "of another type"),
        (lambda f: change(f, data={"seed": 1.5}), MANIFEST_NAME, "of another type"),
        (lambda f: change(f, parameters=[{"name": "head.weight"}]), MANIFEST_NAME, "lacks a field"),
        (lambda f: change(f, files={}), MANIFEST_NAME, "lists no files"),
        (lambda f: (f / MANIFEST_NAME).write_text("[" * 200_000), MANIFEST_NAME, "is not JSON"),
        (lambda f: change(f, step=6), MANIFEST_NAME, "is of step 6"),
    ],
)
def test_a_harmed_checkpoint_says_which_file_and_why(tmp_path, harm, file, reason):
    folder, _ = write(tmp_path, 5)
    harm(folder)
    found = read_manifest(folder)
    assert isinstance(found, NotWhole)
    assert found.file.name == file
    assert reason in found.reason
    assert whole_checkpoints(tmp_path) == []


def test_a_file_in_place_of_a_folder_is_no_checkpoint(tmp_path):
    (tmp_path / "step-00000004").write_text("")
    assert read_manifest(tmp_path / "step-00000004").reason == "cannot be read: Not a directory"


def test_other_bytes_of_the_same_size_are_damage(tmp_path):
    folder, manifest = write(tmp_path, 5)
    path, entry = folder / "state/w.pt", manifest.files["state/w.pt"]
    assert find_damage(path, entry) is None
    path.write_bytes(b"weighty")
    assert read_manifest(folder) == manifest  # the cheap look is at sizes alone
    assert "other bytes than were written" in find_damage(path, entry).reason
    path.unlink()
    assert find_damage(path, entry).reason == "is missing"


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("step-00000012", 12),
        ("step-7", 7),
        ("step-²", None),
        ("step-٣", None),
        ("step--1", None),
        ("step-", None),
        ("12", None),
        ("step-00000004.tmp-run-attempt-1", None),
    ],
)
def test_only_ascii_digits_name_a_step(tmp_path, name, number):
    (tmp_path / name).mkdir()
    assert step_number(tmp_path / name) == number
    assert step_folders(tmp_path) == ([] if number is None else [(number, tmp_path / name)])


def test_step_folders_are_in_order_of_steps_and_may_be_none(tmp_path):
    for name in ("step-10", "step-9", "step-00000011"):
        (tmp_path / name).mkdir()
    assert [step for step, _ in step_folders(tmp_path)] == [9, 10, 11]
    assert step_folders(tmp_path / "none") == []
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        step_folders(tmp_path / "file")
