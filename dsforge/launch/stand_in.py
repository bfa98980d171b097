"""The hosts of a run's attempts: what failed is replaced by spares, and a restart asks all of them first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitKind, code_of_signal
from dsforge.base.files import write_atomically
from dsforge.base.text import counted
from dsforge.launch.cause import Cause
from dsforge.launch.checkpoints import newest_difference
from dsforge.launch.command import checkpoint_dir
from dsforge.launch.hosts import HostCheck, check_hosts
from dsforge.launch.launchers import launcher_of
from dsforge.launch.preflight import Preflight
from dsforge.launch.restarts import BLAMES_THE_HOST
from dsforge.launch.roster import Roster
from dsforge.launch.types import LaunchRequest
from dsforge.records.reasons import Reason
from dsforge.records.run_dir import AttemptDir, RunDir
from dsforge.render.hosts import render_hosts

Tell = Callable[[str, str], None]
"""Takes the name of an event and its message."""
_SIGKILL = 9


class AttemptHosts:
    """The hosts of the attempts of one run. `roster`: those of the attempt that is next, or runs.

    `request`, `bundle`: what it runs, planned anew where hosts are lacking and the recipe allows it.
    """

    def __init__(self, request: LaunchRequest, run_dir: RunDir, found: Preflight) -> None:
        self.request = request
        self.bundle = run_dir.bundle
        self._run_dir = run_dir
        self._planned = found.hosts
        self._blamed: set[str] = set()
        self._left_out: list[str] = []
        hosts, spares = found.hosts, found.spares
        by_job = launcher_of(request.plan).keeper is not None
        self.roster = Roster(hosts, spares, order=(*hosts, *spares) if by_job else None)

    def blame(self, cause: Cause) -> None:
        """Take note of the host that an attempt ended for, by the name that it is reached by."""
        if cause.reason not in BLAMES_THE_HOST:
            return
        if cause.rank is not None and self.roster.hosts:
            self._blamed = {self.roster.hosts[cause.rank // self.request.plan.layout.gpus_per_node]}
        elif cause.host is not None:
            self._blamed = {cause.host}

    def choose(self, directory: AttemptDir, tell: Tell) -> Cause | None:
        """Choose the hosts of a restart; return why it cannot begin where one is lacking."""
        before = self.roster.hosts
        ill = self._replace()
        if came := [host for host in self.roster.hosts if host not in before]:
            went = [host for host in before if host not in self.roster.hosts]
            tell("note", f"{', '.join(came)} stands in for {', '.join(went)}")
        lacking = [host for host in self.roster.hosts if host in ill]
        if not lacking:
            return None
        message = f"host {lacking[0]} cannot be used: {ill[lacking[0]]}; no spare is left for it"
        if self.request.plan.launch.shrink:
            left_out = [*self.roster.failed, *lacking]
            why_not = self._shrink(left_out, directory)
            if why_not is None:
                fewer = f"planned anew for {counted(len(self.roster.hosts), 'node')}"
                last = f"{lacking[0]} cannot be used: {ill[lacking[0]]}"
                tell("note", f"{fewer}, without {', '.join(left_out)}; {last}")
                return None
            message = f"{message}, and without it {why_not}"
        tell("stopping", message)
        code = code_of_signal(_SIGKILL)
        return Cause(ExitKind.HOST_LOST, code, message, host=lacking[0], reason=Reason.HOST_LOST)

    def _shrink(self, lacking: Sequence[str], directory: AttemptDir) -> str | None:
        """Plan anew without the hosts that are lacking; return why that cannot be. OSError."""
        if self.request.replan is None or len(lacking) == len(self.roster.hosts) + len(self.roster.failed):
            return "nothing is left"
        try:
            left_out = [*self._left_out, *lacking]
            request = self.request.replan(left_out)
        except DsforgeError as error:
            return f"there is no plan: {error.message} [{error.code}]"
        if request.plan.external is None:
            folder = checkpoint_dir(self.request, self._run_dir)
            if (difference := newest_difference(folder, request.plan)) is not None:
                return f"the run could not go on: {difference}"
        before, self._left_out = self.request, left_out
        self.request = replace(
            request, runs_root=before.runs_root, recipe_root=before.recipe_root, replan=before.replan
        )
        self.bundle = directory.bundle
        request.bundle.write(self.bundle)
        self._planned = launcher_of(request.plan).hosts(request)
        self.roster = Roster(self._planned)
        return None

    def _replace(self) -> dict[str, str]:
        """Replace what is to blame, and over ssh what does not answer as it should; return what is ill."""
        self.roster = self.roster.without(self._blamed)
        self._blamed = set()
        ill: dict[str, str] = {}
        while launcher_of(self.request.plan).ssh is not None and (
            found := faults(check_hosts(self.request, self.roster.hosts))
        ):
            ill |= found
            self.roster = self.roster.without(ill)
            if not ill.keys().isdisjoint(self.roster.hosts):
                break
        return ill

    def write(self, directory: AttemptDir) -> None:
        """Write the hosts of an attempt into its folder, where they are known; OSError."""
        hosts, rendered = self.roster.hosts, self.request.bundle.files.get("hostfile")
        if rendered is not None and hosts == self._planned:
            write_atomically(directory.hostfile, rendered)  # of chosen GPUs it has more to say
        elif hosts:
            slots = self.request.plan.layout.gpus_per_node
            write_atomically(directory.hostfile, render_hosts(dict.fromkeys(hosts, slots)))


def faults(check: HostCheck) -> dict[str, str]:
    """Return the first error of each host that has one."""
    found: dict[str, str] = {}
    for one in check.errors:
        if one.place is not None and one.place.host in check.failed:
            found.setdefault(one.place.host, one.message)
    return found
