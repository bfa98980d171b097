"""What the pods of a job object are at, as its API tells. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsforge.render.kubernetes import Kind

_SUCCEEDED = ("Succeeded", "Completed")
_DISRUPTED = "DisruptionTarget"
_OUT_OF_MEMORY = "OOMKilled"
_HOPELESS = (
    *("CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull", "ErrImagePull"),
    *("ImagePullBackOff", "InvalidImageName", "RunContainerError"),
)
"""For which a container waits that will not start unless somebody changes something."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod at one moment. `node`: of the plan, None without ranks. `why`: of what it is at, in words.

    `lost`: it was taken away, by what `why` says; `leaves`: it is told to end, by whomever.
    """

    name: str
    node: int | None
    phase: str
    why: str = ""
    lost: bool = False
    leaves: bool = False

    @property
    def ended(self) -> bool:
        """Tell whether nothing of it runs any more."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def failed(self) -> bool:
        """Tell whether it ended badly by itself."""
        return self.phase == "Failed" and not self.lost

    @property
    def out_of_memory(self) -> bool:
        """Tell whether the kernel killed it for its memory."""
        return _OUT_OF_MEMORY in self.why

    @property
    def hopeless(self) -> bool:
        """Tell whether its container will not start as things are."""
        return self.phase == "Pending" and self.why.startswith(_HOPELESS)


def pods_of(kind: Kind, job: str, items: Sequence[Mapping[str, Any]]) -> dict[str, Pod]:
    """Return the pods of a job object by name, from what the API lists."""
    found = (_pod(kind, job, item) for item in items)
    return {pod.name: pod for pod in found}


def _pod(kind: Kind, job: str, item: Mapping[str, Any]) -> Pod:
    metadata, status = item.get("metadata") or {}, item.get("status") or {}
    conditions = {one.get("type"): one for one in status.get("conditions") or ()}
    containers = status.get("containerStatuses") or ()
    states = [one.get("state") or {} for one in containers]
    ended: Mapping[str, Any] = next((state["terminated"] for state in states if "terminated" in state), {})
    waiting: Mapping[str, Any] = next((state["waiting"] for state in states if "waiting" in state), {})
    scheduled = conditions.get("PodScheduled", {})
    disrupted = conditions.get(_DISRUPTED, {})
    taken = disrupted if disrupted.get("status") == "True" else {}
    # A reason of the pod's own is the kubelet's: evicted, node lost, node shut down.
    lost = taken or (status if status.get("reason") and status.get("phase") == "Failed" else {})
    why = lost or ended or waiting or (scheduled if scheduled.get("status") == "False" else {})
    words = [str(why[key]) for key in ("reason", "message") if why.get(key)]
    if ended and not lost:
        words.append(f"exit code {ended.get('exitCode')}")
    name = str(metadata.get("name"))
    return Pod(
        name=name,
        node=kind.node_of(job, name),
        phase=str(status.get("phase", "Pending")),
        why=": ".join(words),
        lost=bool(lost) and _OUT_OF_MEMORY not in words,
        leaves="deletionTimestamp" in metadata,
    )


def ending_of(job: Mapping[str, Any]) -> bool | None:
    """Return whether a job object has ended well; None while it has not ended."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    true = [one.get("type") for one in conditions if one.get("status") == "True"]
    if "Failed" in true:
        return False
    return True if any(word in true for word in _SUCCEEDED) else None


def lost_of(now: Mapping[str, Pod], before: Mapping[str, Pod]) -> dict[int, str]:
    """Return the nodes whose pods somebody or something took away, with the words for it.

    When a pod has failed by itself, controllers delete the others: those are not lost.
    """
    blamed = any(pod.failed for pod in (*before.values(), *now.values()))
    lost: dict[int, str] = {}
    for name, pod in {**before, **now}.items():
        if pod.node is None:
            continue
        if pod.lost:
            lost[pod.node] = pod.why
        elif not blamed and not pod.ended and (name not in now or pod.leaves):
            lost[pod.node] = "it was deleted"
    return lost
