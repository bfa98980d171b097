"""The rendered launch.sh under a real bash: every value arrives as written and nothing in it is run."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dsforge.plan.resolve import examine, make_plan
from dsforge.render.bundle import render
from tests.support.hostile import HOSTILE, names, one_line, recorder
from tests.support.recipes import loaded


def _run(folder: Path, changes: dict[str, Any], cwd: Path | None = None) -> tuple[list[str], dict[str, str]]:
    """Render, run launch.sh with a launcher that writes down how it was called, and return that."""
    bundle = folder / "bundle $(touch PWNED) 'q' -x"
    render(make_plan(loaded(changes))).write(bundle)
    dump, out = folder / "deepspeed", folder / "called.json"
    recorder(dump, out)
    work = cwd or folder
    environ = {
        "PATH": "/usr/bin:/bin",
        "DSFORGE_DEEPSPEED": str(dump),
        "DSFORGE_CORPUS": "corpus",
        "DSFORGE_ROOT": str(folder),
        "CDPATH": str(folder),  # with it `cd` of a relative folder prints where it went
    }
    script = bundle.relative_to(folder) / "launch.sh" if cwd is None else bundle / "launch.sh"
    done = subprocess.run(
        ["bash", str(script)], cwd=work, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not list(folder.rglob("PWNED"))
    argv, seen = json.loads(out.read_text())
    assert seen["DSFORGE_PLAN"] == str(bundle / "plan.json")
    assert argv == [
        *("--hostfile", str(bundle / "hostfile"), "--no_ssh_check"),
        *("--master_addr", "127.0.0.1", "--master_port", "29500", "--no_local_rank"),
        *("--module", "dsforge.rank.main", "dsforge.train.main"),
    ]
    return argv, seen


@settings(max_examples=40)
@given(st.text(min_size=1, max_size=20) | one_line, one_line, st.dictionaries(names, one_line, max_size=5))
def test_names_paths_and_values_arrive_as_written(name: str, checkpoints: str, variables: dict[str, str]):
    assume("\0" not in name and not any("\ud800" <= char <= "\udfff" for char in name))
    assume("PWNED" not in "".join(variables.get(key, "") for key in ("BASH_ENV", "CDPATH")))
    assume(not checkpoints.startswith("~"))  # refused: a recipe does not expand it
    changes = {"name": name, "checkpoint": {"dir": checkpoints}, "launch": {"env": variables}}
    found = {finding.code for finding in examine(loaded(changes))}
    assume(not found)  # names of the launcher, of bash, and of secrets are refused: see test_rules
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _, seen = _run(folder, changes)
        assert {key: seen[key] for key in variables} == variables
        absolute = checkpoints if checkpoints.startswith("/") else f"{folder}/{checkpoints}"
        assert seen["DSFORGE_CHECKPOINT_DIR"] == absolute


@pytest.mark.parametrize("hostile", HOSTILE)
def test_each_hostile_text_alone(hostile: str, tmp_path: Path):
    changes = {
        "name": f"{hostile}\n{hostile}",
        "checkpoint": {"dir": hostile},
        "launch": {"env": {"VALUE": hostile}},
    }
    _, seen = _run(tmp_path, changes)
    assert seen["VALUE"] == hostile
    assert seen["DSFORGE_CHECKPOINT_DIR"] == f"{tmp_path}/{hostile}"


def test_the_script_runs_from_anywhere(tmp_path: Path):
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    _, seen = _run(tmp_path, {}, cwd=elsewhere)
    assert seen["DSFORGE_ATTEMPT_DIR"] == str(elsewhere / "dsforge-run" / "attempt-1")
    assert Path(seen["DSFORGE_ATTEMPT_DIR"]).is_dir()
    assert seen["DSFORGE_CHECKPOINT_DIR"] == str(elsewhere / "dsforge-run" / "checkpoints")


def test_every_variable_that_bash_keeps_is_refused():
    """A name that bash changes or keeps would arrive as another value, or stop the script."""
    listed = subprocess.run(
        ["bash", "-c", "compgen -v"], env={}, capture_output=True, text=True, check=True
    ).stdout.split()
    ordinary = {"HOSTNAME", "HOSTTYPE", "MACHTYPE", "OPTERR", "OSTYPE", "PATH", "PS4", "SHELL", "TERM"}
    ordinary |= {"BASH_EXECUTION_STRING", "BASH_LOADABLES_PATH"}
    for name in set(listed) - ordinary:
        found = examine(loaded({"launch": {"env": {name: "1"}}}))
        assert "DSF150" in {finding.code for finding in found}, name
