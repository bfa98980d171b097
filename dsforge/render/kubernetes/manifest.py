"""The job object of a plan, of the kind that the recipe names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsforge.plan.job_types import Kubernetes
from dsforge.plan.types import Plan
from dsforge.records import environment
from dsforge.render import torchrun
from dsforge.render.kubernetes.fill import PORT, escaped, slug
from dsforge.render.kubernetes.kinds import KINDS
from dsforge.render.kubernetes.pods import template, variables
from dsforge.render.script import trainer_word

MPI_SCRIPT = "mpirun.sh"
"""File of the bundle that the launcher pod of an MPIJob runs."""
_KEPT_SECONDS = 3600
"""How long an ended job object stays that nobody is left to delete."""
_PORT = "29500"
_JOB = f"$({environment.JOB})"


def manifest(plan: Plan) -> dict[str, Any]:
    """Return the job object as it is rendered: what only an attempt of a run has is filled in later."""
    options = plan.launch.kubernetes
    assert options is not None, "planned for Kubernetes"
    kind = KINDS[options.kind]
    metadata: dict[str, Any] = {"name": slug(plan.name), "labels": dict(options.labels)}
    if options.namespace is not None:
        metadata["namespace"] = options.namespace
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        "spec": _SPECS[options.kind](plan, options),
    }


def _torchrun(plan: Plan, options: Kubernetes, node: str) -> list[str]:
    """Return what a pod runs; Kubernetes puts the values of `$(NAME)` in, the controller sets them."""
    layout = plan.layout
    meet = torchrun.options(layout.nodes, layout.gpus_per_node, "$(MASTER_ADDR)", f"$({PORT})")
    return [
        *(escaped(options.python), "-u", "-m", torchrun.MODULE, *meet, f"--node-rank=$({node})"),
        *("--module", "dsforge.rank.main", trainer_word(plan)),
    ]


def _pytorchjob(plan: Plan, options: Kubernetes) -> dict[str, Any]:
    """Its controller sets RANK, which counts pods, MASTER_ADDR and MASTER_PORT."""
    command = _torchrun(plan, options, "RANK")
    pods = template(plan, options, container="pytorch", command=command, env=variables(plan))
    replicas = {"Master": 1, "Worker": plan.layout.nodes - 1}
    return {
        # Pods that have ended stay until the job object goes: what they said last can be asked for.
        "runPolicy": {
            "backoffLimit": 0,
            "cleanPodPolicy": "None",
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
        },
        "pytorchReplicaSpecs": {
            role: {"replicas": count, "restartPolicy": "Never", "template": pods}
            for role, count in replicas.items()
            if count
        },
    }


def _jobset(plan: Plan, options: Kubernetes) -> dict[str, Any]:
    """A pod finds its index in JOB_COMPLETION_INDEX; its name in DNS ends with the job object's."""
    command = _torchrun(plan, options, "JOB_COMPLETION_INDEX")
    env = [
        *variables(plan),
        {"name": "MASTER_ADDR", "value": f"{_JOB}-ranks-0-0.{_JOB}"},
        {"name": PORT, "value": _PORT},
    ]
    nodes = plan.layout.nodes
    return {
        "failurePolicy": {"maxRestarts": 0},
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "ttlSecondsAfterFinished": _KEPT_SECONDS,
        "replicatedJobs": [
            {
                "name": "ranks",
                "replicas": 1,
                "template": {
                    "spec": {
                        "backoffLimit": 0,
                        "completionMode": "Indexed",
                        "completions": nodes,
                        "parallelism": nodes,
                        "template": template(plan, options, container="ranks", command=command, env=env),
                    }
                },
            }
        ],
    }


def _mpijob(plan: Plan, options: Kubernetes) -> dict[str, Any]:
    """Its launcher reaches the workers over ssh, by keys and a hostfile that the controller makes."""
    command = ["bash", f"$({environment.BUNDLE})/{MPI_SCRIPT}"]
    env = [
        *variables(plan),
        {"name": PORT, "value": _PORT},
        {"name": "DSFORGE_PYTHON", "value": escaped(options.python)},
    ]
    launcher = template(plan, options, container="launcher", command=command, env=env, has_ranks=False)
    worker = template(plan, options, container="worker", command=["/usr/sbin/sshd", "-De"])
    return {
        "mpiImplementation": "OpenMPI",
        "slotsPerWorker": plan.layout.gpus_per_node,
        "runPolicy": {
            "backoffLimit": 0,
            # Workers only wait to be told, so that they would never end by themselves.
            "cleanPodPolicy": "All",
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
        },
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": launcher},
            "Worker": {"replicas": plan.layout.nodes, "restartPolicy": "Never", "template": worker},
        },
    }


_SPECS: dict[str, Callable[[Plan, Kubernetes], dict[str, Any]]] = {
    "pytorchjob": _pytorchjob,
    "mpijob": _mpijob,
    "jobset": _jobset,
}
