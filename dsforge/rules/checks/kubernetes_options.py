"""DSF700: a Kubernetes job has an image, and a volume that all its pods share."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.rules.facts import Facts
from dsforge.rules.ignored import ignored
from dsforge.rules.registry import Found, Rule

_KEY = "launch.kubernetes"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - of a pod, which is given it
_OWN_LABELS = "dsforge/"
_OWN = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi")
"""Resources that Kubernetes knows without a domain before their name."""


def _check(facts: Facts) -> Iterator[Found]:
    launch = facts.recipe.launch
    section = launch.kubernetes
    if launch.launcher != "kubernetes":
        yield from ignored("kubernetes", launch)
        return
    if section.image is None:
        yield Found(
            "no image is named for the pods",
            f"{_KEY}.image",
            "set launch.kubernetes.image to one with dsforge[train] in it",
        )
    if not section.volumes:
        yield Found(
            "no volume is named: the pods would share no folder for the run, its data and its checkpoints",
            f"{_KEY}.volumes",
            "write `volumes: {CLAIM: /mnt/shared}`, a claim that many pods may write, mounted here too",
        )
    paths = list(section.volumes.values())
    for path in sorted({path for path in paths if paths.count(path) > 1 or path == _SHARED_MEMORY}):
        yield Found(
            f"another volume is mounted at {path}",
            f"{_KEY}.volumes",
            "give each volume a path of its own",
        )
    for key in section.labels:
        if key.startswith(_OWN_LABELS):
            yield Found(
                f"labels of {_OWN_LABELS} are set by dsforge on every job object",
                f"{_KEY}.labels",
                f"remove `{key}`",
            )
    for name in section.resources:
        if name == section.gpu_resource:
            yield Found(
                f"{name} stands for the GPUs of a pod, of which the recipe has cluster.gpus_per_node",
                f"{_KEY}.resources",
                f"remove `{name}`",
            )
        elif "/" not in name and name not in _OWN:
            yield Found(
                f"Kubernetes has no resource `{name}`",
                f"{_KEY}.resources",
                f"one of {', '.join(_OWN)}, or a device plugin's with its domain, such as `rdma/hca`",
            )


RULE = Rule(
    code="DSF700",
    name="kubernetes-options",
    severity=Severity.ERROR,
    summary="a Kubernetes job has an image, and a volume that all its pods share",
    why="Ranks and supervisor know of each other by files of one folder; a pod's own are gone with it.",
    check=_check,
    plannable=True,
)
