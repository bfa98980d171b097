"""The pods of a job object: one a node, each with the GPUs of the plan and the volumes of the recipe."""

from __future__ import annotations

from typing import Any

from dsforge.plan.job_types import Kubernetes
from dsforge.plan.types import Plan
from dsforge.records import environment
from dsforge.render.kubernetes.fill import LABEL, escaped, slug

_SHARED_MEMORY = "shared-memory"
_GRACE_SECONDS = 60
"""For ranks to save when a node is drained: torchrun gives them half of it."""

Entry = dict[str, Any]


def variables(plan: Plan) -> list[Entry]:
    """Return the variables of the ranks: the recipe's and what follows from it, and secrets by name."""
    job = slug(plan.name)
    written = [{"name": name, "value": escaped(value)} for name, value in sorted(plan.launch.env.items())]
    secrets = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": job, "key": name}}}
        for name in plan.launch.env_from
    ]
    return [{"name": environment.JOB, "value": job}, *written, *secrets]


def template(
    plan: Plan,
    options: Kubernetes,
    *,
    container: str,
    command: list[str],
    env: list[Entry] | None = None,
    has_ranks: bool = True,
) -> dict[str, Any]:
    """Return a template of pods. `has_ranks`: they get GPUs, and what else a node's ranks need."""
    mounts = {f"volume-{number}": path for number, path in enumerate(options.volumes.values())}
    claims = {f"volume-{number}": claim for number, claim in enumerate(options.volumes)}
    amounts = dict(options.resources)
    if plan.accelerator == "cuda":
        amounts[options.gpu_resource] = str(plan.layout.gpus_per_node)
    pod: dict[str, Any] = {
        "containers": [
            {
                "name": container,
                "image": options.image,
                "command": command,
                **({"env": env} if env is not None else {}),
                **({"resources": {"limits": amounts, "requests": amounts}} if has_ranks and amounts else {}),
                "volumeMounts": [
                    {"name": _SHARED_MEMORY, "mountPath": "/dev/shm"},  # noqa: S108 - of the pod
                    *({"name": name, "mountPath": path} for name, path in mounts.items()),
                ],
            }
        ],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "volumes": [
            # A container's own has 64 MiB, too little for data loaders and NCCL.
            {"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}},
            *(
                {"name": name, "persistentVolumeClaim": {"claimName": claim}}
                for name, claim in claims.items()
            ),
        ],
    }
    if options.service_account is not None:
        pod["serviceAccountName"] = options.service_account
    if options.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in options.image_pull_secrets]
    if options.node_selector:
        pod["nodeSelector"] = dict(options.node_selector)
    if options.tolerations:
        pod["tolerations"] = [_toleration(text) for text in options.tolerations]
    metadata: dict[str, Any] = {"labels": {LABEL: slug(plan.name)}}
    if options.annotations:
        metadata["annotations"] = dict(options.annotations)
    return {"metadata": metadata, "spec": pod}


def _toleration(text: str) -> dict[str, str]:
    taint, _, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    borne = (
        {"key": key, "operator": "Equal", "value": value} if equals else {"key": key, "operator": "Exists"}
    )
    return {**borne, "effect": effect} if effect else borne
