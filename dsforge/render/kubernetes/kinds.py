"""The kinds of job objects: where their API lies, and which node of the plan each of their pods is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Name = Literal["pytorchjob", "mpijob", "jobset"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind. `pods`: what follows a job's name in a pod's, with its index, and the nodes before it."""

    group: str
    version: str
    kind: str
    plural: str
    pods: tuple[tuple[re.Pattern[str], int], ...]

    @property
    def api_version(self) -> str:
        """Return what a manifest calls its API."""
        return f"{self.group}/{self.version}"

    def node_of(self, job: str, pod: str) -> int | None:
        """Return the node of the plan that a pod is; None for one without ranks, as MPI's launcher."""
        rest = pod.removeprefix(job)
        for pattern, before in self.pods:
            if match := pattern.fullmatch(rest):
                return before + int(match[1])
        return None


_WORKER = re.compile(r"-worker-([0-9]{1,6})")

KINDS: dict[Name, Kind] = {
    "pytorchjob": Kind(
        "kubeflow.org",
        "v1",
        "PyTorchJob",
        "pytorchjobs",
        ((re.compile(r"-master-([0-9]{1,6})"), 0), (_WORKER, 1)),
    ),
    "mpijob": Kind("kubeflow.org", "v2beta1", "MPIJob", "mpijobs", ((_WORKER, 0),)),
    "jobset": Kind(
        "jobset.x-k8s.io",
        "v1alpha2",
        "JobSet",
        "jobsets",
        ((re.compile(r"-ranks-0-([0-9]{1,6})(?:-[a-z0-9]+)?"), 0),),
    ),
}


def kind_of(manifest: Mapping[str, Any]) -> Kind:
    """Return the kind of a rendered manifest; ValueError for another one."""
    for kind in KINDS.values():
        if manifest.get("kind") == kind.kind and manifest.get("apiVersion") == kind.api_version:
            return kind
    raise ValueError(f"{manifest.get('kind')} is none of {', '.join(one.kind for one in KINDS.values())}")
