"""What each command returns, and where it writes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsforge.launch.offloading import has_libaio
from tests.launch_support.run_folders import make_run
from tests.support.recipes import ROOT, SHIPPED, SMALL, write

DSFORGE = [sys.executable, "-c", "from dsforge.cli.main import run; run()"]
Cli = Callable[..., Any]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["validate", "GOOD"], 0),
        (["validate", "REFUSED"], 1),
        (["validate", "UNREADABLE"], 2),
        (["validate", "nowhere.yaml"], 2),
        (["validate", "GOOD", "REFUSED"], 1),
        (["validate", "GOOD", "UNREADABLE"], 2),
        (["validate", "GOOD", "batch.global=33"], 1),
        (["validate"], 2),
        (["validate", "batch.global=33"], 2),
        (["plan", "GOOD"], 0),
        (["plan", "REFUSED"], 1),
        (["plan", "UNREADABLE"], 2),
        (["plan", "GOOD", "--profile", "none"], 2),
        (["render", "GOOD", "--out", "bundle"], 0),
        (["render", "GOOD", "--out", "bundle", "launch.launcher=slurm"], 0),
        (["launch", "GOOD", "launch.launcher=slurm"], 3),
        (["launch", "--dry-run", "GOOD", "launch.launcher=slurm"], 0),
        (["render", "REFUSED", "--out", "bundle"], 1),
        (["render", "GOOD", "--out", "GOOD"], 3),
        (["render", "GOOD", "--check", "--out", "bundle"], 1),
        (["lock", "GOOD", "-o", "new.lock"], 0),
        (["lock", "REFUSED"], 1),
        (["lock", "UNREADABLE"], 2),
        (["lock", "GOOD", "-o", "GOOD/x"], 3),
        (["lock", "GOOD", "--check"], 2),
        (["diff", "GOOD", "GOOD"], 0),
        (["diff", "GOOD", "REFUSED"], 1),
        (["diff", "GOOD", "UNREADABLE"], 2),
        (["diff", "GOOD"], 2),
        (["diff", "GOOD", "GOOD", "--fail-on", "nothing"], 2),
        (["config", "show", "GOOD"], 0),
        (["config", "show", "UNREADABLE"], 2),
        (["config", "migrate", "GOOD"], 0),
        (["config", "migrate", "nowhere.yaml"], 2),
        (["validate", "REFUSED", "--fix"], 0),
        (["plan", "GOOD", "--set", "batch.global=33"], 1),
        (["plan", "GOOD", "--set", "nonsense"], 2),
        (["launch", "REFUSED", "--dry-run"], 1),
        (["launch", "UNREADABLE"], 2),
        (["smoke", "REFUSED"], 1),
        (["smoke", "GOOD", "--steps", "1"], 2),
        (["verify", "UNREADABLE"], 2),
        (["init"], 0),
        (["init", "--model", "gpt5"], 2),
        (["init", "--model", "175B", "--gpus", "1"], 1),
        (["init", "--out", "GOOD"], 2),
        (["init", "--out", "GOOD/x.yaml"], 3),
        (["init", "--out", "x" * 300], 3),
        (["schema"], 0),
        (["presets", "list"], 0),
        (["presets", "show", "gpt2"], 0),
        (["presets", "show", "gpt5"], 2),
        (["rule"], 0),
        (["rule", "dsf121"], 0),
        (["rule", "DSF999"], 2),
        (["data", "prep"], 2),
        (["data", "prep", "nowhere.txt", "-o", "out"], 2),
        (["data", "prep", "GOOD", "-o", "GOOD/out"], 3),
        (["nonsense"], 2),
        (["plan", "GOOD", "--nonsense"], 2),
        ([], 2),
        (["--version"], 0),
        (["--help"], 0),
    ],
)
def test_exit_codes(cli: Cli, words: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    files = {
        "GOOD": SMALL,
        "REFUSED": SMALL.replace("zero: 1", "zero: 3"),
        "UNREADABLE": SMALL.replace("batch", "bach"),
    }
    for name, text in files.items():
        write(tmp_path, text, name)
    shown = cli(*words)
    assert shown.code == code, shown.err
    if code:
        assert "Traceback" not in shown.err
        assert "internal error" not in shown.err
        assert shown.err or shown.out


@pytest.mark.parametrize("recipe", SHIPPED, ids=lambda path: path.stem)
def test_shipped_recipes_validate_and_plan(cli: Cli, recipe: Path):
    assert cli("validate", recipe).out == f"{recipe}: ok\n"
    assert cli("plan", recipe).code == 0


def test_validate_judges_each_file(cli: Cli, tmp_path: Path):
    good, bad = write(tmp_path), write(tmp_path, SMALL.replace("tp: 2", "tp: 0"), "bad.yaml")
    shown = cli("validate", good, bad)
    assert shown.code == 2
    assert shown.out == f"{good}: ok\n{bad}: refused\n"
    assert f"--> {bad}:5:12" in shown.err


def test_a_file_whose_name_holds_an_equals_sign_is_a_recipe(cli: Cli, tmp_path: Path):
    assert cli("validate", write(tmp_path, SMALL, "lr=3.yaml")).code == 0


def test_a_long_change_is_no_file_name(cli: Cli, tmp_path: Path):
    assert cli("validate", write(tmp_path), f"launch.env.A={'x' * 5000}").code == 0


def test_warnings_do_not_refuse(cli: Cli, tmp_path: Path):
    shown = cli("validate", write(tmp_path), "batch.micro=4")
    assert shown.code == 0
    assert shown.err.startswith("warning[DSF131]")
    assert "  --> argument `batch.micro=4`" not in shown.err  # it is about the global batch, in the file


def test_data_goes_to_stdout_and_the_rest_to_stderr(cli: Cli, tmp_path: Path):
    refused = cli("plan", write(tmp_path, SMALL.replace("global: 32", "global: 33")))
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("error[DSF111]: ")
    assert "   |  batch: {global: 33, micro: 2, seq_len: 64}" in refused.err


@pytest.mark.parametrize(
    "words",
    [
        ["validate", "RECIPE"],
        ["plan", "RECIPE"],
        ["render", "RECIPE", "-o", "OUT"],
        ["launch", "RECIPE", "--dry-run"],
        ["lock", "RECIPE", "-o", "OUT"],
        ["diff", "RECIPE", "RECIPE"],
        ["config", "show", "RECIPE"],
        ["presets", "list"],
        ["presets", "show", "gpt2"],
        ["rule"],
        ["rule", "DSF120"],
        ["doctor"],
        ["runs", "list", "--runs", "OUT"],
    ],
    ids=" ".join,
)
def test_json_is_one_object_with_a_schema_version(cli: Cli, words: list[str], tmp_path: Path):
    named = {"RECIPE": str(ROOT / "recipes" / "smoke.yaml"), "OUT": str(tmp_path / "out")}
    shown = cli(*(named.get(word, word) for word in words), "--json")
    assert shown.json["schema_version"] == 1
    assert shown.code in (0, 3 if words == ["doctor"] else 0)


def test_doctor_tells_of_libaio_and_codes_come_in_their_order(cli: Cli):
    found = cli("doctor", "--json").json["op_cache"]["libaio"]
    assert found is has_libaio(os.environ)
    assert ("libaio       found" in cli("doctor").out) == found
    codes = [one["code"] for one in cli("rule", "--json").json["errors"]]
    assert codes == sorted(codes)


@pytest.mark.parametrize(("change", "code"), [("parallel.zero=x", 2), ("batch.global=33", 1)])
@pytest.mark.parametrize("command", ["plan", "render", "lock", "launch", "smoke", "verify"])
def test_errors_are_json_too(cli: Cli, command: str, change: str, code: int, tmp_path: Path):
    shown = cli(command, write(tmp_path), change, "--json")
    assert shown.code == code
    assert shown.json["schema_version"] == 1
    assert shown.json["error"]["code"].startswith("DSF")
    assert shown.json["error"]["place"] == {"file": f"argument `{change}`"}
    assert shown.json["findings"][0] == shown.json["error"]
    assert shown.err.startswith("error[DSF")


def test_json_mode_ends_with_its_command(cli: Cli, tmp_path: Path):
    cli("plan", write(tmp_path), "batch.global=33", "--json")
    assert cli("plan", write(tmp_path), "batch.global=33").out == ""


def _start(*words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    return subprocess.run([*DSFORGE, *words], env=environ, check=False, **options)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_is_no_fault_and_hides_none(unbuffered: str, tmp_path: Path):
    refused = str(write(tmp_path, SMALL.replace("zero: 1", "zero: 3")))
    for words, code in ((["schema"], 0), (["validate", refused], 1)):
        reading, writing = os.pipe()
        os.close(reading)
        environ = {"PYTHONUNBUFFERED": unbuffered}
        done = _start(*words, stdout=writing, stderr=subprocess.PIPE, env=environ)
        os.close(writing)
        assert done.returncode == code
        assert b"Broken pipe" not in done.stderr
        assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["plan", "GOOD"], 0),
        (["plan", "REFUSED"], 1),
        (["plan", "REFUSED", "--json"], 1),
        (["plan", "nowhere.yaml"], 2),
        (["plan", "--nonsense"], 2),
        (["runs", "show", "none"], 2),
        (["--help"], 0),
        ([], 2),
    ],
)
@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full", "2>&1 | true"])
def test_a_lost_stream_never_changes_the_code(redirection: str, words: list[str], code: int, tmp_path: Path):
    write(tmp_path, SMALL, "GOOD")
    write(tmp_path, SMALL.replace("zero: 1", "zero: 3"), "REFUSED")
    command = f"{shlex.join([*DSFORGE, *words])} {redirection}; exit ${{PIPESTATUS[0]}}"
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environ, capture_output=True, check=False
    )
    assert done.returncode == code, done
    assert b"Traceback" not in done.stdout + done.stderr
    assert b"Exception ignored" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["GOOD", "REFUSED"]


def test_progress_that_cannot_be_shown_is_lost_and_no_more(tmp_path: Path):
    program = (
        "import time\n"
        "from dsforge.cli import output\n"
        "from dsforge.cli.progress import Progress\n"
        "from dsforge.launch.types import ProgressEvent\n"
        "output.open_streams()\n"
        "progress = Progress(3)\n"
        "for name in ('created', 'started', 'ended'):\n"
        "    progress(ProgressEvent(time.time(), name, 'words'))\n"
        "with output.expendable():\n"
        "    output.line('a result')\n"
        "raise SystemExit(7)\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], env=environ, stdout=full, stderr=full, check=False
        )
    assert done.returncode == 7


def test_a_dry_run_that_nobody_can_read_has_failed(tmp_path: Path):
    write(tmp_path, SMALL, "GOOD")
    command = f"{shlex.join([*DSFORGE, 'launch', '--dry-run', 'GOOD', 'launch.launcher=slurm'])} >&-"
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environ, capture_output=True, check=False
    )
    assert done.returncode == 3
    assert done.stderr.startswith(b"error[DSF064]: the system refused: stdout is closed\n")


def test_a_folder_where_a_file_is_read_is_named_with_its_mend(tmp_path: Path):
    run_dir = make_run(tmp_path, "a", state="succeeded", ended_time=200.0)
    run_dir.attempt(1).metrics.mkdir()
    done = _start("runs", "show", "a", "--runs", str(tmp_path), stderr=subprocess.PIPE)
    assert done.returncode == 3
    assert b"hint: it is a folder: name a file, or remove it" in done.stderr
    assert os.fsencode(run_dir.attempt(1).metrics) in done.stderr


def test_a_full_disk_is_an_environments_fault():
    with Path("/dev/full").open("w") as full:
        done = _start("schema", stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 3
    assert done.stderr.startswith(b"error[DSF064]: the system refused: No space left on device")


def test_output_is_utf8_wherever_it_goes(tmp_path: Path):
    recipe = write(tmp_path, SMALL.replace("name: small", "name: café-日本"))
    for command in (["plan", str(recipe)], ["plan", "--json", str(recipe)]):
        done = _start(*command, stdout=subprocess.PIPE, env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
        assert done.returncode == 0
        assert "café-日本" in done.stdout.decode("utf-8")


def test_a_file_name_that_is_not_utf8(tmp_path: Path):
    name = os.fsencode(tmp_path) + b"/\xff\x1b.yaml"
    Path(os.fsdecode(name)).write_text(SMALL)
    plain = _start("validate", os.fsdecode(name), stdout=subprocess.PIPE)
    shown = _start("validate", "--json", os.fsdecode(name), stdout=subprocess.PIPE)
    assert b"\x1b" not in plain.stdout + shown.stdout
    # Its stem cannot be a name; the recipe's own is used.
    assert (plain.returncode, shown.returncode) == (0, 0)
    assert json.loads(shown.stdout)["recipes"][0]["ok"] is True


def test_colour_only_on_a_terminal_and_never_with_no_color(tmp_path: Path):
    import pty

    refused = str(write(tmp_path, SMALL.replace("zero: 1", "zero: 3")))

    def on_a_terminal(**environ: str) -> bytes:
        ours, theirs = pty.openpty()
        environ = {"TERM": "xterm", **environ}
        _start("validate", refused, stdout=subprocess.DEVNULL, stderr=theirs, env=environ)
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 4096):
                shown += chunk
        except OSError:  # the other end is closed
            pass
        os.close(ours)
        return shown

    assert b"\x1b[1;31merror[DSF120]\x1b[0m" in on_a_terminal()
    assert b"\x1b" not in on_a_terminal(NO_COLOR="1")
    assert b"\x1b" not in on_a_terminal(TERM="dumb")
    assert b"error[DSF120]" in on_a_terminal(NO_COLOR="1")


def test_control_characters_from_a_recipe_never_reach_the_terminal(cli: Cli, tmp_path: Path):
    hostile = '"\\e]0;owned\\a\\e[31m\\u202e\\x9b1m"'
    named = write(tmp_path, SMALL.replace("name: small", f"name: {hostile}"))
    model = write(tmp_path, SMALL.replace("version: 1", f"version: 1\n{hostile}: 1"), "key.yaml")
    raw = tmp_path / "raw.yaml"
    raw.write_text(SMALL.replace("tp: 2", "tp: 0 # \x9b31m"))
    for path in (named, model, raw):
        for command in ("validate", "plan"):
            shown = cli(command, path)
            assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown.out + shown.err)
    assert "\\x1b]0;owned" in cli("plan", named).out
