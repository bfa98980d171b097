"""`preflight`: everything that would keep a recipe from running on its hosts, before a run is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dsforge.base.errors import DsforgeError, Finding, Severity
from dsforge.base.exits import ExitCode
from dsforge.launch.all_reduce import AllReduce, all_reduce
from dsforge.launch.building import Builds, build_everywhere
from dsforge.launch.hosts import check_hosts
from dsforge.launch.launchers import launcher_of
from dsforge.launch.preflight import look
from dsforge.launch.survey import Seen
from dsforge.launch.types import LaunchRequest
from dsforge.ops.bundles import bundle_for
from dsforge.ops.fewer_hosts import changes_without
from dsforge.ops.start import StartOptions, prepare
from dsforge.plan.types import Plan
from dsforge.recipe.load import LoadedRecipe


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found. `all_reduce` is None where it was not wanted, or something failed before it.

    `left_out`: hosts that failed, if the plan holds without them under these `changes` of the recipe.
    `builds` is None where none were wanted, or something failed before them.
    """

    plan: Plan
    hosts: tuple[Seen, ...]
    findings: tuple[Finding, ...]
    all_reduce: AllReduce | None
    left_out: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    builds: Builds | None = None

    @property
    def passed(self) -> bool:
        """Tell whether nothing was found that keeps the run from starting."""
        return not any(one.severity is Severity.ERROR for one in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        sums = self.all_reduce
        return {
            "passed": self.passed,
            "hosts": [_as_dict(seen, self.findings) for seen in self.hosts],
            "findings": [one.as_dict() for one in self.findings],
            "left_out": list(self.left_out),
            "changes": list(self.changes),
            "build": _builds_as_dict(self.builds) if self.builds is not None else None,
            "all_reduce": {
                "bytes": sums.bytes,
                "ranks": sums.ranks,
                "seconds": sums.seconds,
                "bytes_per_second": sums.bytes_per_second,
            }
            if sums is not None
            else None,
        }


def preflight(
    loaded: LoadedRecipe, options: StartOptions, seconds: float, *, quick: bool, build: bool = False
) -> Preflight:
    """Look at this host and at all others; unless `quick`, have the ranks sum over all of them.

    `build`: have every host compile the kernels that the ranks would else compile at their start. No host has
    longer than `seconds` for an answer. DsforgeError where the recipe itself is refused.
    """
    request = _absolute(prepare(loaded, options))
    _check_reachable(request)
    found = look(request)
    hosts = _reached(request, (*found.hosts, *found.spares))
    check = check_hosts(request, hosts, seconds)
    result = Preflight(
        request.plan,
        check.seen,
        (*(_as_finding(one) for one in found.refusals), *check.findings),
        None,
    )
    if build and result.passed:
        builds = build_everywhere(request, _reached(request, found.hosts))
        result = replace(result, builds=builds, findings=(*result.findings, *builds.findings()))
    if quick or not result.passed:
        return result
    try:
        summed = all_reduce(request, lambda plan: bundle_for(plan, loaded), seconds)
    except DsforgeError as error:
        summed = _as_finding(error)
    if isinstance(summed, Finding):
        return replace(result, findings=(summed, *result.findings))
    return replace(result, all_reduce=summed)


def without_failed(
    failed: Preflight,
    reload: Callable[[Sequence[str]], LoadedRecipe],
    options: StartOptions,
    seconds: float,
    *,
    quick: bool,
    build: bool = False,
) -> Preflight:
    """Plan anew for the hosts that did not fail, and look at those again.

    `reload` loads the recipe with changes. What the recipe says stays: its batch, and every degree that it
    names. DsforgeError DSF277 where that is no plan.
    """
    blamed = {_host_of(one) for one in failed.findings if one.severity is Severity.ERROR}
    names = [seen.host for seen in failed.hosts if seen.host in blamed]
    if not blamed <= set(names) or len(names) == len(failed.hosts):
        return failed  # what is at fault is no single host
    changes = changes_without(failed.plan, names)
    try:
        result = preflight(reload(changes), options, seconds, quick=quick, build=build)
    except DsforgeError as error:
        raise DsforgeError(
            "DSF277",
            f"without {', '.join(names)} there is no plan for {len(failed.hosts) - len(names)} nodes: "
            f"{error.message}",
            error.place,
            error.hint or "leave parallel.dp to auto, or mend the hosts",
            ExitCode.FINDINGS,
            failed.findings,
        ) from None
    warned = tuple(replace(one, severity=Severity.WARNING) for one in failed.findings)
    return replace(result, findings=(*result.findings, *warned), left_out=tuple(names), changes=changes)


def _host_of(finding: Finding) -> str | None:
    return finding.place.host if finding.place is not None else None


def _absolute(request: LaunchRequest) -> LaunchRequest:
    return replace(
        request, runs_root=request.runs_root.absolute(), recipe_root=request.recipe_root.absolute()
    )


def _check_reachable(request: LaunchRequest) -> None:
    launcher = launcher_of(request.plan)
    if launcher.ssh is None and not launcher.here:
        raise DsforgeError(
            "DSF278",
            f"the {request.plan.launch.launcher} launcher reaches its hosts by itself, not over ssh: "
            "none can be asked from here",
            hint="`dsforge launch` starts it; its ranks are compared with the plan before the first step",
            exit_code=ExitCode.FINDINGS,
        )


def _reached(request: LaunchRequest, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts to ask: this one alone where the launcher starts nothing elsewhere."""
    return tuple(hosts)[:1] if launcher_of(request.plan).here else tuple(hosts)


def _as_finding(error: DsforgeError) -> Finding:
    return Finding(error.code, Severity.ERROR, error.message, None, error.place, error.hint)


def _builds_as_dict(builds: Builds) -> dict[str, Any]:
    rows = [
        {
            "host": one.host,
            "answered": one.built is not None,
            **(asdict(one.built) if one.built is not None else {}),
        }
        for one in builds.hosts
    ]
    return {"needed": list(builds.needed), "hosts": rows}


def _as_dict(seen: Seen, findings: Sequence[Finding]) -> dict[str, Any]:
    facts = seen.facts
    own = [one for one in findings if one.place is not None and one.place.host == seen.host]
    told: dict[str, Any] = {
        "host": seen.host,
        "node": seen.node,
        "answered": facts is not None,
        "passed": not any(one.severity is Severity.ERROR for one in own),
    }
    if facts is None:
        return told
    return {
        **told,
        "name": facts.host,
        "versions": facts.versions,
        "gpus": [gpu.name for gpu in facts.gpus],
        "memory_bytes": facts.memory_bytes,
        "address": facts.announced.address,
        "interface": facts.route,
        "clock_offset_seconds": seen.offset_seconds,
    }
