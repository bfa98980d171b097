"""A world of 16,384 ranks: rendering, the check of its reports, and by number of hosts fan-out and preflight.

Run: make bench. The fan-out is the real one; the ssh on its PATH is a stub that answers after 50 ms and then
holds its connection, like a host that trains, until the last one has answered. Prints one JSON object.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import measure

from dsforge.base.canonical import dump_line
from dsforge.launch.ssh import WIDTH
from dsforge.launch.world import report_difference
from dsforge.ops.bundles import plan_and_bundle
from dsforge.plan.types import Plan
from dsforge.rank.agent import READY
from dsforge.rank.facts import host_facts
from dsforge.recipe.load import load_recipe
from dsforge.records.probe import MARK, Listening, Question, Reached, Time
from dsforge.records.streams import WorldReport

NODES, SLOTS = 2048, 8
FAN_OUTS = (64, 256, 1024, 2048)
ROUNDS = 3
_ANSWER_SECONDS = 0.05
_LONGEST_SECONDS = 60.0
_RECIPE = f"""\
version: 1
model: llama3-8b
cluster: {{nodes: {NODES}, gpus_per_node: {SLOTS}, gpu: h100-sxm-80gb, hostfile: hosts}}
parallel: {{tp: {SLOTS}, pp: 8}}
batch: {{global: {NODES * SLOTS}, micro: 1, seq_len: 8192}}
train: {{tokens: 1T tokens, precision: bf16, recompute: full}}
launch: {{launcher: ssh}}
"""
_STUB = """\
#!/bin/sh
head -n 1 > /dev/null
sleep {seconds}
echo '{ready}'
read -r end < '{gate}'
"""
_PREFLIGHT = """
import os, resource, time
from dsforge.launch.ssh import make_room, ssh_command
from dsforge.launch.survey import survey
from dsforge.records.probe import Question
make_room(3 * {count})
hosts = [f"node{{number:04}}" for number in range({count})]
question = Question({{}}, gpus=False, master="127.0.0.1", folders={{}}, files=(), ops="/nowhere")
started = time.perf_counter()
seen = survey(hosts, lambda host: ssh_command(host, "x", {{}}, ""), os.environ, question, (29500,), 60.0)
seconds = time.perf_counter() - started
answered = sum(one.silence is None for one in seen)
print(seconds, answered, round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1))
"""


def main() -> None:
    """Time each part in turn and print the figures."""
    machine = measure.machine()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        rendering, checking = zip(*(_plan_and_world(folder) for _ in range(ROUNDS)), strict=True)
        fan_outs = {hosts: _fan_out(folder, hosts) for hosts in FAN_OUTS}
        preflights = {hosts: _preflight(folder, hosts) for hosts in FAN_OUTS}
    measure.report(
        "scale",
        {
            "ranks": NODES * SLOTS,
            "recipe_to_bundle_seconds": round(sorted(rendering)[ROUNDS // 2], 3),
            "world_check_seconds": round(sorted(checking)[ROUNDS // 2], 3),
            "fan_out_over_ssh": fan_outs,
            "preflight_over_ssh": preflights,
        },
        rounds=ROUNDS,
        machine=machine,
    )


def _plan_and_world(folder: Path) -> tuple[float, float]:
    """Return the seconds from a recipe and a hostfile to the bundle, and of the check of all reports."""
    (folder / "hosts").write_text(
        "".join(f"node{number:04} slots={SLOTS}\n" for number in range(NODES)), "utf-8"
    )
    (folder / "recipe.yaml").write_text(_RECIPE, "utf-8")
    started = time.perf_counter()
    plan, bundle = plan_and_bundle(load_recipe(folder / "recipe.yaml"))
    rendering = time.perf_counter() - started
    assert bundle.files["hostfile"].count("\n") == NODES
    started = time.perf_counter()
    _check_world(plan)
    return rendering, time.perf_counter() - started


def _check_world(plan: Plan) -> None:
    seen: dict[int, WorldReport] = {}
    for rank in range(NODES * SLOTS):
        node, local = divmod(rank, SLOTS)
        report = WorldReport(
            time=0.0,
            rank=rank,
            local_rank=local,
            world_size=NODES * SLOTS,
            host=f"node{node:04}",
            node=node,
            pid=rank,
            pid_start=1,
            trainer_pid=rank,
            trainer_pid_start=1,
        )
        assert report_difference(plan, report, seen) is None
        seen[rank] = report


def _fan_out(folder: Path, count: int) -> dict[str, float]:
    """Start a number of hosts; return the seconds to the last one's answer and the peak memory in MiB.

    `least_seconds` is what the answers alone take, a width of hosts at a time; the rest is starting programs,
    the stub's own three among them.
    """
    gate, programs = folder / f"gate-{count}", folder / f"bin-{count}"
    os.mkfifo(gate)
    programs.mkdir()
    stub = programs / "ssh"
    stub.write_text(_STUB.format(seconds=_ANSWER_SECONDS, ready=READY, gate=gate), "utf-8")
    stub.chmod(0o755)
    hostfile = folder / f"hosts-{count}"
    hostfile.write_text("".join(f"node{number:04} slots={SLOTS}\n" for number in range(count)), "utf-8")
    started = time.perf_counter()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "dsforge.launch.fan_out", "--hostfile", str(hostfile)),
            *("--master-port", "29500", "--", "dsforge.train.main"),
        ],
        env=measure.environment(PATH=f"{programs}{os.pathsep}{os.environ['PATH']}"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for answered, line in enumerate(process.stdout, start=1):
        assert line.endswith(f"{READY}\n"), line
        if answered == count:
            break
    seconds = time.perf_counter() - started
    peak = _peak_mib(process.pid)
    with gate.open("w") as end:
        end.write("\n" * count)  # one line for each host that reads one
        end.flush()
        assert process.wait(_LONGEST_SECONDS) == 0
    return {
        "seconds": round(seconds, 2),
        "least_seconds": round(-(-count // WIDTH) * _ANSWER_SECONDS, 2),
        "seconds_a_host": round(seconds / count, 4),
        "peak_mib": peak,
    }


def _preflight(folder: Path, count: int) -> dict[str, float]:
    """Ask a number of hosts and compare what they say; return the seconds and the peak memory in MiB."""
    programs = folder / f"asked-{count}"
    programs.mkdir()
    question = Question({}, gpus=False, master="127.0.0.1", folders={}, files=(), ops="/nowhere")
    answers = {
        "facts": host_facts(question),
        "listen": Listening(29500, 29500, None),
        "clock": Time(time.time()),
        "reach": Reached((None, None)),
    }
    lines = [f"sleep {_ANSWER_SECONDS}"]
    for answer in answers.values():  # in the order of the questions
        (programs / type(answer).__name__).write_text(MARK + dump_line(asdict(answer)), "utf-8")
        lines.append(f"read -r question; cat '{programs / type(answer).__name__}'")
    (programs / "ssh").write_text("\n".join(["#!/bin/sh", *lines, "read -r end"]), "utf-8")
    (programs / "ssh").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", _PREFLIGHT.format(count=count)],
        env=measure.environment(PATH=f"{programs}{os.pathsep}{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, answered, peak = map(float, done.stdout.split())
    assert answered == count
    return {"seconds": round(seconds, 2), "seconds_a_host": round(seconds / count, 4), "peak_mib": peak}


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    (line,) = [one for one in status.splitlines() if one.startswith("VmHWM:")]
    return round(int(line.split()[1]) / 1024, 1)


if __name__ == "__main__":
    main()
