"""`validate --fix` mends what has one mend, shows it, and touches nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.recipes import SMALL, write

Cli = Callable[..., Any]
BROKEN = SMALL.replace("zero: 1}", "zero: 3}   # too much").replace("global: 32", "global: 33")


def test_errors_are_mended_and_shown(cli: Cli, tmp_path: Path):
    path = write(tmp_path, BROKEN)
    path.chmod(0o600)
    assert cli("validate", path).code == 1
    assert path.read_text() == BROKEN
    fixed = cli("validate", path, "--fix")
    assert (fixed.code, fixed.err) == (0, "")
    wanted = BROKEN.replace("zero: 3", "zero: 1").replace("global: 33", "global: 36")
    assert path.read_text() == wanted
    assert path.stat().st_mode & 0o777 == 0o600
    assert "\n-batch: {global: 33, micro: 2, seq_len: 64}\n" in fixed.out
    assert "\n+batch: {global: 36, micro: 2, seq_len: 64}\n" in fixed.out
    assert fixed.out.startswith(f"--- {path}\n+++ {path}\n")
    assert fixed.out.endswith(f"{path}: ok\n")
    again = cli("validate", path, "--fix", "--json")
    assert again.json["recipes"][0]["diff"] == ""


def test_what_cannot_be_mended_stays_and_is_told(cli: Cli, tmp_path: Path):
    text = BROKEN.replace("hidden: 64", "hidden: 66")
    path = write(tmp_path, text)
    fixed = cli("validate", path, "--fix")
    assert fixed.code == 1
    assert "error[DSF104]" in fixed.err
    assert (
        "not mended  DSF104: several edits mend it, or none in the recipe: its hint says which\n" in fixed.err
    )
    assert "DSF120" not in fixed.err
    assert path.read_text() == text.replace("zero: 3", "zero: 1").replace("global: 33", "global: 36")


def test_warnings_are_left_alone(cli: Cli, tmp_path: Path):
    text = SMALL.replace("nodes: 1, gpus_per_node: 8", "nodes: 8, gpus_per_node: 1")
    path = write(tmp_path, text)
    shown = cli("validate", path, "--fix")
    assert (shown.code, path.read_text()) == (0, text)
    assert "warning[DSF130]" in shown.err


def test_values_of_arguments_and_variables_are_not_the_files(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = write(tmp_path)
    shown = cli("validate", path, "batch.global=33", "--fix")
    told = "not mended  DSF111: batch.global is not the file's: argument `batch.global=33`\n"
    assert (shown.code, told in shown.err) == (1, True)
    monkeypatch.setenv("DSFORGE__PARALLEL__ZERO", "3")
    (row,) = cli("validate", path, "--fix", "--json").json["recipes"]
    assert (row["ok"], row["diff"]) == (False, "")
    assert row["unmended"] == ["DSF120: parallel.zero is not the file's: environment DSFORGE__PARALLEL__ZERO"]
    assert path.read_text() == SMALL


def test_a_profile_is_mended_in_the_profile(cli: Cli, tmp_path: Path):
    path = write(tmp_path, SMALL + "profiles:\n  big: {batch: {global: 33}}   # more\n")
    assert cli("validate", path, "--profile", "big", "--fix").code == 0
    assert path.read_text() == SMALL + "profiles:\n  big: {batch: {global: 36}}   # more\n"


def test_an_extended_file_is_not_touched(cli: Cli, tmp_path: Path):
    base = write(tmp_path, BROKEN)
    path = write(tmp_path, "version: 1\nextends: recipe.yaml\n# mine\nbatch: {global: 64}\n", "child.yaml")
    assert cli("validate", path, "--fix").code == 0
    assert base.read_text() == BROKEN
    assert path.read_text() == (
        "version: 1\nextends: recipe.yaml\n# mine\nbatch: {global: 64}\nparallel: {zero: 1}\n"
    )


def test_a_link_stays_a_link(cli: Cli, tmp_path: Path):
    target = write(tmp_path, BROKEN)
    link = tmp_path / "link.yaml"
    link.symlink_to(target)
    assert cli("validate", link, "--fix").code == 0
    assert link.is_symlink()
    assert "zero: 1}   # too much" in target.read_text()


def test_an_unreadable_recipe_is_left_alone(cli: Cli, tmp_path: Path):
    path = write(tmp_path, SMALL.replace("batch", "bach"))
    fixed = cli("validate", path, "--fix")
    assert (fixed.code, "cannot be read is mended by hand" in fixed.err) == (2, True)
    assert path.read_text() == SMALL.replace("batch", "bach")


def test_an_alias_in_the_way_of_one_edit_stops_no_other(cli: Cli, tmp_path: Path):
    text = BROKEN.replace("parallel: {", "parallel: &p {") + "profiles: {same: {parallel: *p}}\n"
    path = write(tmp_path, text)
    fixed = cli("validate", path, "--fix")
    assert (fixed.code, "error[DSF120]" in fixed.err) == (1, True)
    assert "not mended  DSF120: `parallel.zero` cannot be edited: an alias or anchor" in fixed.err
    assert path.read_text() == text.replace("global: 33", "global: 36")
