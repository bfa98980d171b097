"""The hosts of a restart, where what the hosts answer is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError, Finding, Place, Severity
from dsforge.base.exits import ExitKind
from dsforge.launch import stand_in
from dsforge.launch.cause import Cause
from dsforge.launch.hosts import HostCheck
from dsforge.launch.preflight import Preflight
from dsforge.launch.stand_in import AttemptHosts
from dsforge.launch.survey import Seen
from dsforge.launch.types import LaunchRequest
from dsforge.records.reasons import Reason
from dsforge.records.run_dir import AttemptDir, RunDir
from tests.launch_support.bundles import make_bundle
from tests.launch_support.plans import make_plan


def request(root: Path, *, launcher: str = "ssh", shrink: bool = False) -> LaunchRequest:
    plan = make_plan(world_size=4)
    layout = plan.layout.model_copy(update={"nodes": 2, "gpus_per_node": 2})
    launch = plan.launch.model_copy(update={"launcher": launcher, "shrink": shrink})
    plan = plan.model_copy(update={"layout": layout, "launch": launch})
    return LaunchRequest(plan, make_bundle(plan), root / "runs", root, "tiny.yaml", "", (), {})


def hosts_of(asked: LaunchRequest, spares: tuple[str, ...] = ("s",)) -> AttemptHosts:
    found = Preflight(None, None, Path("/ops"), ("a", "b"), spares, ())
    return AttemptHosts(asked, RunDir(asked.runs_root / "r"), found)


def lost(host: str | None = None, rank: int | None = None, reason: Reason = Reason.HOST_LOST) -> Cause:
    return Cause(ExitKind.HOST_LOST, 137, "", rank=rank, host=host, reason=reason)


@pytest.fixture
def ill(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What is wrong with hosts that are asked."""
    faults: dict[str, str] = {}

    def check(_: LaunchRequest, hosts: Sequence[str]) -> HostCheck:
        told = [
            Finding("DSF251", Severity.ERROR, faults[host], None, Place(host=host))
            for host in hosts
            if host in faults
        ]
        return HostCheck(tuple(Seen(host, node) for node, host in enumerate(hosts)), tuple(told))

    monkeypatch.setattr(stand_in, "check_hosts", check)
    return faults


def choose(hosts: AttemptHosts, folder: Path) -> tuple[Cause | None, list[tuple[str, str]]]:
    told: list[tuple[str, str]] = []
    cause = hosts.choose(AttemptDir(folder), lambda name, message: told.append((name, message)))
    return cause, told


@pytest.mark.parametrize("cause", [lost("b"), lost("its own name", rank=3), lost(None, 2, Reason.HARDWARE)])
def test_the_host_of_the_failure_is_replaced(tmp_path: Path, ill: dict[str, str], cause: Cause):
    hosts = hosts_of(request(tmp_path))
    hosts.blame(cause)
    assert choose(hosts, tmp_path) == (None, [("note", "s stands in for b")])
    assert hosts.roster.hosts == ("a", "s")
    hosts.write(AttemptDir(tmp_path))
    assert (tmp_path / "hostfile").read_text() == "a slots=2\ns slots=2\n"


def test_a_host_that_is_not_to_blame_stays(tmp_path: Path, ill: dict[str, str]):
    hosts = hosts_of(request(tmp_path))
    hosts.blame(lost("b", rank=3, reason=Reason.KILLED))
    assert choose(hosts, tmp_path) == (None, [])
    assert hosts.roster.hosts == ("a", "b")


def test_what_does_not_answer_is_replaced_and_an_ill_spare_passed_over(tmp_path: Path, ill: dict[str, str]):
    ill |= {"a": "no route", "s": "no route"}
    hosts = hosts_of(request(tmp_path), ("s", "t"))
    assert choose(hosts, tmp_path) == (None, [("note", "t stands in for a")])


def test_a_host_that_comes_back_is_used_when_nothing_else_is_left(tmp_path: Path, ill: dict[str, str]):
    hosts = hosts_of(request(tmp_path), ())
    hosts.blame(lost("b"))
    assert choose(hosts, tmp_path) == (None, [])
    ill["b"] = "no route"
    cause, told = choose(hosts, tmp_path)
    message = "host b cannot be used: no route; no spare is left for it"
    assert cause is not None
    assert (cause.kind, cause.host, cause.reason) == (ExitKind.HOST_LOST, "b", Reason.HOST_LOST)
    assert (cause.message, told) == (message, [("stopping", message)])


def test_nobody_is_asked_where_a_scheduler_starts_the_ranks(tmp_path: Path, ill: dict[str, str]):
    ill |= {"a": "no route", "b": "no route"}
    hosts = hosts_of(request(tmp_path, launcher="slurm"))
    hosts.blame(lost("a"))
    assert choose(hosts, tmp_path)[0] is None
    assert hosts.roster.hosts == ("b", "s")


def test_where_there_is_no_plan_for_fewer_hosts_the_run_ends_and_says_so(tmp_path: Path, ill: dict[str, str]):
    def replan(hosts: Sequence[str]) -> LaunchRequest:
        assert list(hosts) == ["b"]
        raise DsforgeError("DSF111", "3 does not divide")

    asked = request(tmp_path, shrink=True)
    asked = LaunchRequest(**{**{name: getattr(asked, name) for name in asked.__slots__}, "replan": replan})
    ill["b"] = "no route"
    cause, _ = choose(hosts_of(asked, ()), tmp_path)
    assert cause is not None
    assert cause.message == (
        "host b cannot be used: no route; no spare is left for it, "
        "and without it there is no plan: 3 does not divide [DSF111]"
    )
