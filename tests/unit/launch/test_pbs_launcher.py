"""A PBS job is the planned world or starts nothing, and its supervisor is told before its time is up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.launch.job import _give_notice
from dsforge.launch.launchers.pbs import hosts
from dsforge.launch.types import LaunchRequest
from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan
from dsforge.render.bundle import render
from tests.support.recipes import loaded


def plan_for(**pbs: object) -> Plan:
    launch = {"launcher": "pbs", "stop_timeout": 1, "pbs": pbs}
    return make_plan(loaded({"cluster": {"nodes": 2, "gpus_per_node": 4}, "launch": launch}))


def request_in(folder: Path, nodes: str | None) -> LaunchRequest:
    environ = {}
    if nodes is not None:
        (folder / "nodes").write_text(nodes)
        environ = {"PBS_JOBID": "7.server", "PBS_NODEFILE": str(folder / "nodes")}
    plan = plan_for()
    return LaunchRequest(plan, render(plan), folder, folder, "small.yaml", "", (), environ)


def test_the_hosts_are_those_of_the_job_in_its_order(tmp_path: Path):
    assert hosts(request_in(tmp_path, "n2\n" * 4 + "n1\n" * 4)) == ("n2", "n1")
    assert hosts(request_in(tmp_path, None)) == ()


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ("n1\n" * 4, "nodes: 1, the plan has 2"),
        ("n1\n" * 4 + "n2\n" * 3, "n2 is named 3 times, the plan has 4 ranks there"),
    ],
)
def test_another_world_starts_nothing(tmp_path: Path, nodes: str, words: str):
    with pytest.raises(DsforgeError) as fault:
        hosts(request_in(tmp_path, nodes))
    assert fault.value.code == "DSF243"
    assert "the PBS job 7.server is not the planned world" in fault.value.message
    assert words in fault.value.message


@pytest.fixture
def told() -> Iterator[threading.Event]:
    heard = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.set())
    yield heard
    signal.signal(signal.SIGUSR1, before)


def test_the_notice_comes_before_the_end(told: threading.Event):
    _give_notice(plan_for(time=2, notice=1))
    assert told.wait(30)


@pytest.mark.parametrize("pbs", [{"time": 0, "notice": 1}, {"time": 2, "notice": 0}])
def test_without_a_limit_or_a_notice_there_is_none(told: threading.Event, pbs: dict[str, int]):
    before = threading.active_count()
    _give_notice(plan_for(**pbs))
    assert threading.active_count() == before
