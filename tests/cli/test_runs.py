"""`dsforge runs` over run folders made by hand."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsforge.base import lease
from dsforge.base.canonical import dumps
from dsforge.cli.progress import Progress
from dsforge.launch.types import ProgressEvent
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import Restart, RunExit, read_state
from dsforge.records.streams import Event, ExitRecord, WorldReport
from tests.launch_support.plans import make_plan
from tests.launch_support.run_folders import NOBODY, make_run, write_lines

Cli = Callable[..., Any]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_run(tmp_path, "old", state="succeeded", exit=RunExit(0, "ok", ""), started_time=1.0)
    end = RunExit(1, "rank_failed", "rank 1\n  Oops", rank=1, host="h")
    run_dir = make_run(tmp_path, "new", state="failed", exit=end, trainer="fsdp")
    write_lines(
        run_dir.attempt(1).rank_stream(0),
        WorldReport(1.0, 0, 0, 2, "h", 0, 9, 1, 10, 1),
        WorldReport(1.0, 1, 1, 2, "h", 0, 11, 1, 12, 1),
        ExitRecord(9.0, 1, 1, "exception", tail=("Traceback (most recent call last):", "Oops")),
    )
    run_dir.attempt(1).log(0).write_text("[rank 1] \x1b[31mOops\x1b[0m\n")
    run_dir.bundle.mkdir()
    (run_dir.bundle / "plan.json").write_text(dumps(make_plan().to_json_value()))
    return tmp_path


def test_a_failed_run_says_how_and_where(cli: Cli, root: Path):
    shown = cli("runs", "show", "--runs", root)
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[0] == "new: failed, 1 rank 1"
    assert "  layout    TP 1 x PP 1 x DP 2, ZeRO-0, 2 ranks, trainer forge, fp32" in lines
    told = cli("runs", "show", "--runs", root, "--json").json["layout"]
    assert [told[key] for key in ("trainer", "precision", "optimizer", "dp")] == ["forge", "fp32", "adamw", 2]
    assert lines[-5:] == [
        "  ranks     program: 1; no exit record: 0",
        "  failed    rank 1 on host h",
        f"  log       {root / 'new' / 'attempt-1' / 'node-0.log'}",
        "  | Traceback (most recent call last):",
        "  | Oops",
    ]
    assert cli("runs", "show", "latest", "--runs", root).out.splitlines()[0] == lines[0]
    assert cli("runs", "show", "old", "--runs", root).out.startswith("old: succeeded, 0 \n")


def test_the_logs_begin_with_the_first_error_and_tell_once_what_many_say(cli: Cli, root: Path):
    for rank, words in ((2, "reset"), (3, "reset"), (4, "reset"), (5, "other")):
        record = ExitRecord(10.0 + rank, rank, 1, "exception", tail=(words,))
        write_lines(RunDir(root / "new").attempt(1).rank_stream(0), record)
    shown = cli("runs", "logs", "new", "--runs", root)
    assert shown.out.splitlines() == [
        "== first error: rank 1 on host h",
        "[rank 1] Traceback (most recent call last):",
        "[rank 1] Oops",
        "== another error: rank 2",
        "[rank 2] reset",
        "== 2 more ranks the same: 3-4",
        "== another error: rank 5",
        "[rank 5] other",
        "== all lines",
        "[rank 1] Oops",
    ]
    of_node = cli("runs", "logs", "new", "--node", 0, "--runs", root)
    assert of_node.out.splitlines()[0] == "== first error: rank 1 on host h"
    assert cli("runs", "logs", "new", "--node", 1, "--runs", root).code == 2


def test_steps_that_became_slow_are_told(cli: Cli, root: Path):
    told = Event(20.0, "supervisor", "slow", "steps take 5 s at step 12; rank 1 hangs\n  rank 0 waits", {})
    write_lines(RunDir(root / "new").attempt(1).events, told)
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(20.0))
    lines = cli("runs", "show", "new", "--runs", root).out.splitlines()
    assert f"  slow      {when}: steps take 5 s at step 12; rank 1 hangs" in lines


def test_an_edit_that_would_mend_the_end_is_shown(cli: Cli, tmp_path: Path):
    how = RunExit(137, "rank_killed", "killed", rank=1, signal=9, reason="host_memory", hint="batch.micro=2")
    make_run(tmp_path, "big", state="failed", exit=how)
    assert "  hint      batch.micro=2" in cli("runs", "show", "--runs", tmp_path).out.splitlines()


def test_a_rank_that_is_not_there(cli: Cli, root: Path):
    shown = cli("runs", "logs", "new", "--rank", 7, "--runs", root)
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith("error[DSF223]: this attempt has no rank 7")
    assert "hint: there are ranks 0 to 1" in shown.err
    assert cli("runs", "logs", "new", "--rank", 1, "--runs", root).out.endswith("[rank 1] Oops\n")


def test_the_list_says_which_trainer_a_run_has(cli: Cli, root: Path):
    shown = cli("runs", "list", "--json", "--runs", root)
    assert [(run["run_id"], run["trainer"]) for run in shown.json["runs"]] == [("new", "fsdp"), ("old", None)]
    rows = [line.split() for line in cli("runs", "list", "--runs", root).out.splitlines()]
    assert [row[:3] for row in rows if row[:1] in (["new"], ["old"])] == [
        ["new", "failed", "fsdp"],
        ["old", "succeeded", "-"],
    ]


def test_one_bad_state_hides_no_run(cli: Cli, root: Path):
    state = root / "old" / "state.json"
    state.write_text(state.read_text().replace('"started_time": 1.0', '"started_time": "abc"'))
    shown = cli("runs", "list", "--json", "--runs", root)
    assert shown.code == 0
    assert {run["run_id"]: run["state"] for run in shown.json["runs"]} == {"old": "unknown", "new": "failed"}
    assert cli("runs", "show", "old", "--runs", root).code == 3


def test_a_lost_run_is_explained(cli: Cli, tmp_path: Path):
    run_dir = make_run(tmp_path, "gone", supervisor=NOBODY)
    write_lines(run_dir.attempt(1).rank_stream(0), ExitRecord(9.0, 0, 143, "lease_lost"))
    why = "the supervisor (dsforge launch, pid 1) died; of its ranks ended 1 with code 143 (lease_lost)"
    shown = cli("runs", "show", "--runs", tmp_path)
    assert shown.out.splitlines()[0] == f"gone: lost, {why}"
    assert f"  lost      {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(9.0))}" in shown.out.splitlines()
    assert why in cli("runs", "list", "--runs", tmp_path).out
    told = cli("runs", "show", "--json", "--runs", tmp_path).json
    assert (told["summary"]["loss"], told["way_on"]) == ({"message": why, "time": 9.0}, None)


def test_ranks_that_printed_nothing_are_said_to(cli: Cli, root: Path):
    attempt = root / "new" / "attempt-1"
    (attempt / "launcher.log").write_text("words\n")
    silent = cli("runs", "logs", "new", "--rank", 0, "--runs", root)
    assert (silent.code, silent.out) == (0, "")
    assert silent.err == (
        "note: rank 0 wrote no output in attempt 1; `dsforge runs show new` shows what the run did\n"
    )
    assert cli("runs", "logs", "new", "--rank", 1, "--runs", root).err == ""
    (attempt / "node-0.log").write_text("")
    (attempt / "metrics.jsonl").touch()
    everybody = cli("runs", "logs", "new", "--runs", root)
    assert everybody.out.endswith("[launcher] words\n")
    assert everybody.err.startswith(
        f"note: the ranks wrote no output in attempt 1; the steps are in {attempt}/metrics.jsonl, and "
    )


def test_how_a_run_ended_is_told_once(capsys: pytest.CaptureFixture[str]):
    for tells_end, told in ((True, "stopped by SIGTERM"), (False, "")):
        Progress(3, tells_end=tells_end)(ProgressEvent(0.0, "ended", "stopped by SIGTERM"))
        assert capsys.readouterr().err.strip()[9:] == told


def test_a_command_may_have_words_of_its_own_for_what_happens(capsys: pytest.CaptureFixture[str]):
    progress = Progress(3, told={"stopping": "nothing is kept"})
    for name in ("stopping", "joined"):
        progress(ProgressEvent(0.0, name, "the ranks save a checkpoint"))
    told = [line[9:] for line in capsys.readouterr().err.splitlines()]
    assert told == ["nothing is kept", "the ranks save a checkpoint"]


def test_only_what_nobody_supervises_is_reaped(cli: Cli, tmp_path: Path):
    lost = make_run(tmp_path, "lost", supervisor=NOBODY)
    live = make_run(tmp_path, "live")
    with lease.hold(live.lease):
        refused = cli("runs", "reap", "live", "--runs", tmp_path)
        assert (refused.code, refused.out) == (1, "")
        assert "error[DSF722]: run live is running, and its supervisor lives" in refused.err
        assert "hint: `dsforge runs stop live` ends it" in refused.err
        assert cli("runs", "reap", "--runs", tmp_path).out == "lost: nothing was left of it\n"
        again = cli("runs", "reap", "--runs", tmp_path)
    assert (again.code, again.out) == (0, "")
    assert "no run is lost" in again.err
    state = read_state(lost.state)
    assert state is not None
    assert state.exit is not None
    assert (state.state, state.exit.code, state.exit.kind) == ("failed", 137, "launcher_died")
    assert state.exit.message == "the supervisor (dsforge launch, pid 1) died; nothing was left of it"
    told = cli("runs", "reap", "lost", "--json", "--runs", tmp_path).json["runs"]
    here = {socket.gethostname(): {"found": 0, "left": 0}}
    assert told == [{"run_id": "lost", "hosts": here, "silent": {}, "clean": True}]


def test_attempts_are_shown_with_their_hosts_and_why_there_was_no_other(cli: Cli, tmp_path: Path):
    why = "it would end the same way again: numerics"
    end = RunExit(1, "rank_failed", "rank 0 failed", reason="numerics", not_restarted=why)
    restart = Restart(2, 5.0, "host b is gone", reason="host_lost")
    run = make_run(tmp_path, "a", state="failed", attempt=2, exit=end, restarts=(restart,))
    for number, hosts in ((1, "ab"), (2, "ac")):
        run.attempt(number).hostfile.write_text("".join(f"{host} slots=1\n" for host in hosts))
    lines = cli("runs", "show", "--runs", tmp_path).out.splitlines()
    first = lines.index("  restart   attempt 2 (host lost): host b is gone")
    assert lines[first + 1 : first + 4] == [
        "  hosts     attempt 1 on a, b",
        "  hosts     attempt 2 on a, c",
        f"  ended     not restarted (numerics): {why}",
    ]
    told = cli("runs", "show", "--json", "--runs", tmp_path).json
    assert [attempt["hosts"] for attempt in told["attempts"]] == [["a", "b"], ["a", "c"]]
    assert told["state"]["restarts"][0]["reason"] == "host_lost"
    assert (told["state"]["exit"]["reason"], told["state"]["exit"]["not_restarted"]) == ("numerics", why)


def test_steps_that_were_skipped_or_jumped_are_told_and_what_ranks_compared(cli: Cli, root: Path):
    def event(name: str, message: str, **data: Any) -> Event:
        return Event(20.0, "trainer", name, message, data)

    write_lines(
        RunDir(root / "new").attempt(1).events,
        event("skipped", "step 3 skipped", step=3),
        event("skipped", "step 4 skipped", step=4),
        event("skipped", "step 4 skipped", step=4),
        event("skipped", "2 of 9 steps skipped in all", skipped_steps=2),
        event("spike", "the loss of step 7 is 9.1", step=7),
        event("finished", "9 steps done", checks={"gradients": 4, "parameters": 0, "dealt_out": 7}),
    )
    lines = cli("runs", "show", "new", "--runs", root).out.splitlines()
    assert "  skipped   2 steps whose gradients overflowed: 3-4" in lines
    assert "  spike     the loss of step 7 is 9.1" in lines
    assert "  checked   equal between ranks: gradients 4 times" in lines
    assert "  checked   every element of 7 gradients has one replica that updates it" in lines
    assert not any(
        line.startswith(("  skipped", "  spike")) for line in cli("runs", "show", "old", "--runs", root).out
    )
