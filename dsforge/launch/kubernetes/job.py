"""`python -m dsforge.launch.kubernetes.job`: one attempt's job object, from its creation to its end.

It is deleted, with its pods and its secret, when its pods have ended, when this process is told so, and when
the supervisor of the attempt is dead.
"""

from __future__ import annotations

import argparse
import base64
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from dsforge.base.canonical import loads
from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.base.files import write_atomically
from dsforge.base.lease import LeaseWatch
from dsforge.launch.kubernetes.api import Cluster
from dsforge.launch.kubernetes.pods import Pod, ending_of, lost_of, pods_of
from dsforge.plan.types import Plan
from dsforge.records import environment
from dsforge.records.run_dir import AttemptDir
from dsforge.render.kubernetes import Filling, fill, job_name, kind_of
from dsforge.render.kubernetes.fill import LABEL
from dsforge.render.script import RUNS_VARIABLES

READY = "dsforge: all pods have started"
LOST = "^dsforge: {host} is lost: "
KILLED = "dsforge: ranks {first} to {last} were killed: "
POD = "pod-{}"
"""What a node of the plan is called here."""
_TICK_SECONDS = 0.2
_LOOK_SECONDS = 1.0
_HOPELESS_SECONDS = 30.0
_LAST_PODS_SECONDS = 60.0
"""From the end of the job object to that of pods which still do their last work."""
_DELETE_SECONDS = 25.0
_LAST_LINES = 20
_LAST_WORDS = 3


class JobObject:
    """The job object of one attempt, and what has been told of it."""

    def __init__(self, cluster: Cluster, manifest: Mapping[str, Any], plan: Plan) -> None:
        self._cluster, self._manifest = cluster, manifest
        self._kind, self._name = kind_of(manifest), str(manifest["metadata"]["name"])
        self._ranks, self._nodes = plan.layout.gpus_per_node, plan.layout.nodes
        self._secrets = plan.launch.env_from
        self._pods: dict[str, Pod] = {}
        self._told: set[str] = set()
        self._over_since: float | None = None
        self._hopeless_since: dict[str, float] = {}
        self.ended_well: bool | None = None

    def create(self) -> None:
        """Create it and its secret, or neither; DsforgeError."""
        uid = self._cluster.create(self._manifest)
        place = f"{self._cluster.namespace}/{self._name}"
        _say(f"dsforge: {self._kind.kind} {place} was created on {self._cluster.host}")
        if not self._secrets:
            return
        values = {name: base64.b64encode(os.fsencode(os.environ[name])).decode() for name in self._secrets}
        owner = {
            "apiVersion": self._kind.api_version,
            "kind": self._kind.kind,
            "name": self._name,
            "uid": uid,
        }
        try:
            self._cluster.create_secret(self._name, values, owner)
        except DsforgeError:
            self.delete()
            raise

    def look(self) -> bool:
        """Ask what it is at, tell the news, return whether it is over; DsforgeError for a pod without hope.

        A server that does not answer says nothing of the job.
        """
        try:
            # In this order: of a pod that is gone it is then known whether the job object goes too.
            items = self._cluster.pods(f"{LABEL}={self._name}")
            job = self._cluster.job(self._manifest)
        except DsforgeError as error:
            self._tell(f"dsforge: it is not known what the pods are at: {error.message}")
            return False
        before, self._pods = self._pods, pods_of(self._kind, self._name, items)
        is_deleted = job is None or "deletionTimestamp" in job["metadata"]
        if is_deleted:
            self._tell("dsforge: somebody deletes the job object; its ranks are told to stop")
        self.ended_well = ending_of(job) if job is not None else False
        self._take_news({} if is_deleted or self.ended_well else lost_of(self._pods, before))
        now = time.monotonic()
        self._give_up(now)
        if self.ended_well is None:
            return False
        self._over_since = self._over_since or now
        at_work = any(not pod.ended for pod in self._pods.values() if pod.node is not None)
        return not (at_work and self._kind.kind != "MPIJob") or now - self._over_since > _LAST_PODS_SECONDS

    def say_last_words(self) -> None:
        """Tell what pods printed last that failed, before they are deleted."""
        failed = [pod for pod in self._pods.values() if pod.failed]
        for pod in failed[:_LAST_WORDS]:
            try:
                for line in self._cluster.last_words(pod.name, _LAST_LINES):
                    _say(f"{pod.name}: {line}")
            except DsforgeError as error:
                self._tell(f"dsforge: what {pod.name} printed is not known: {error.message}")

    def delete(self) -> None:
        """Delete it with all that belongs to it, and wait for that as long as it makes sense."""
        deadline = time.monotonic() + _DELETE_SECONDS
        asked = False
        while time.monotonic() < deadline:
            try:
                if not asked:
                    self._cluster.delete(self._manifest)
                    asked = True
                if self._cluster.job(self._manifest) is None:
                    _say("dsforge: the job object is deleted")
                    return
            except DsforgeError as error:
                self._tell(f"dsforge: {error.message}")
            time.sleep(_TICK_SECONDS)
        where = f"{self._kind.plural}.{self._kind.group} {self._name} --namespace={self._cluster.namespace}"
        _say(
            f"dsforge: the job object may still be there; its ranks end by themselves: kubectl delete {where}"
        )

    def _take_news(self, lost: Mapping[int, str]) -> None:
        """Tell what is new of the pods. `lost`: by node why its pod was taken away, when only that was."""
        for pod in self._pods.values():
            self._tell(f"dsforge: {pod.name} is {pod.phase}" + (f": {pod.why}" if pod.why else ""))
            if pod.out_of_memory and pod.node is not None:
                first = pod.node * self._ranks
                self._tell(KILLED.format(first=first, last=first + self._ranks - 1) + pod.why)
        for node, why in lost.items():
            self._tell(f"dsforge: {POD.format(node)} is lost: {why}")
        started = [pod for pod in self._pods.values() if pod.node is not None and pod.phase != "Pending"]
        if len(started) == self._nodes:
            self._tell(READY)

    def _give_up(self, now: float) -> None:
        hopeless = {name: pod for name, pod in self._pods.items() if pod.hopeless}
        self._hopeless_since = {name: self._hopeless_since.get(name, now) for name in hopeless}
        for name, since in self._hopeless_since.items():
            if now - since > _HOPELESS_SECONDS:
                raise DsforgeError(
                    "DSF708",
                    f"{name} cannot start: {hopeless[name].why}",
                    hint=f"see `kubectl describe pod {name} --namespace={self._cluster.namespace}`",
                    exit_code=ExitCode.ENVIRONMENT,
                )

    def _tell(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            _say(line)


class _Words:
    """What this process was told: by hand a first signal asks the ranks, then, or from above, all ends."""

    def __init__(self, attempt: AttemptDir, *, supervised: bool) -> None:
        self.at_once = False
        self._attempt = attempt
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Who signals everything that runs here has told the supervisor too, which does the rest.
            signal.signal(number, signal.SIG_IGN if supervised else self._ask)
        signal.signal(signal.SIGQUIT, self._end)

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        if self._attempt.stop_request.exists():
            self.at_once = True
        else:
            write_atomically(self._attempt.stop_request, str(number))

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self.at_once = True


def filling(attempt: Path, name: str, environ: Mapping[str, str]) -> Filling:
    """Return what a plan's job object has as that of an attempt. `environ`: of who starts it."""
    names = (*RUNS_VARIABLES, environment.BUNDLE)
    variables = {one: environ[one] for one in names if one in environ}
    return Filling(
        job=job_name(name, str(attempt)),
        environ={**variables, environment.ATTEMPT_DIR: str(attempt)},
        folder=str(attempt),
        port=environ.get("MASTER_PORT") or None,
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _run(manifest: Mapping[str, Any], plan: Plan, attempt: AttemptDir, lease: str | None) -> int:
    words = _Words(attempt, supervised=lease is not None)
    watch = LeaseWatch(Path(lease)) if lease is not None else None
    job = JobObject(Cluster(manifest["metadata"].get("namespace")), manifest, plan)
    job.create()
    try:
        next_look = 0.0
        while not words.at_once and (watch is None or watch.is_held()):
            if time.monotonic() >= next_look:
                if job.look():
                    break
                next_look = time.monotonic() + _LOOK_SECONDS
            time.sleep(_TICK_SECONDS)
        if not any(attempt.path.glob("ranks-*.jsonl")):
            job.say_last_words()  # ranks that have reported have logs of their own
    finally:
        job.delete()
    return int(ExitCode.OK) if job.ended_well else int(ExitCode.BEFORE_FIRST_STEP)


def main(arguments: list[str]) -> int:
    """Have Kubernetes run an attempt; return 0 when the job object ended well."""
    parser = argparse.ArgumentParser(prog="python -m dsforge.launch.kubernetes.job", description=__doc__)
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--attempt", type=Path, required=True)
    parser.add_argument("--run", help="identity of the run that the attempt is of")
    given = parser.parse_args(arguments)
    environ = {**os.environ, **({environment.RUN_ID: given.run} if given.run else {})}
    try:
        plan = Plan.model_validate_json((given.manifest.parent / "plan.json").read_text("utf-8"))
        rendered = loads(given.manifest.read_text("utf-8"))
        manifest = fill(rendered, filling(given.attempt, plan.name, environ))
        return _run(manifest, plan, AttemptDir(given.attempt), environ.get(environment.LEASE))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"dsforge: {error}\n")
    except DsforgeError as error:
        sys.stderr.write(f"dsforge: error[{error.code}]: {error.message}\n")
        if error.hint:
            sys.stderr.write(f"dsforge: hint: {error.hint}\n")
    return int(ExitCode.ENVIRONMENT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
