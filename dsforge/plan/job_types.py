"""What a plan asks schedulers for."""

from __future__ import annotations

from typing import Literal

from dsforge.plan.frozen import Frozen


class Slurm(Frozen):
    """What the Slurm job asks for besides nodes, ranks and GPUs; times in seconds, 0 where there is none."""

    partition: str | None
    account: str | None
    qos: str | None
    constraint: str | None
    time_seconds: int
    notice_seconds: int
    requeue: bool
    cpus_per_task: int | None
    extra: tuple[str, ...]


class Kubernetes(Frozen):
    """The job object of Kubernetes and its pods, as `launch.kubernetes` has it."""

    kind: Literal["pytorchjob", "mpijob", "jobset"]
    namespace: str | None
    image: str
    python: str
    volumes: dict[str, str]
    gpu_resource: str
    resources: dict[str, str]
    service_account: str | None
    image_pull_secrets: tuple[str, ...]
    node_selector: dict[str, str]
    tolerations: tuple[str, ...]
    labels: dict[str, str]
    annotations: dict[str, str]


class Pbs(Frozen):
    """What the PBS job asks for besides nodes, ranks and GPUs; times in seconds, 0 where there is none."""

    queue: str | None
    project: str | None
    account: str | None
    time_seconds: int
    notice_seconds: int
    cpus_per_rank: int
    place: str
    resources: dict[str, str]
    rerun: bool
