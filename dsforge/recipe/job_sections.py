"""What a recipe asks a scheduler for: jobs of Slurm, of PBS, and job objects of Kubernetes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dsforge.recipe.kubernetes_values import (
    Image,
    KubernetesKey,
    KubernetesLabel,
    KubernetesName,
    KubernetesValue,
    MountPath,
    Quantity,
    Toleration,
)
from dsforge.recipe.pbs_values import PbsName, PbsResources
from dsforge.recipe.quantities import Degree, EnvValue, Flag, Seconds
from dsforge.recipe.section import Section
from dsforge.recipe.slurm_values import (
    LONGEST_NOTICE_SECONDS,
    SlurmConstraint,
    SlurmName,
    SlurmOption,
    SlurmTime,
)


class SlurmSection(Section):
    """What a Slurm job asks for besides nodes, ranks and GPUs, which `cluster` says."""

    partition: SlurmName | None = Field(default=None, description="Default: the cluster's.")
    account: SlurmName | None = Field(default=None, description="Account that is charged.")
    qos: SlurmName | None = Field(default=None, description="Quality of service.")
    constraint: SlurmConstraint | None = Field(default=None, description="Features the nodes must have.")
    time: SlurmTime = Field(default=0.0, description="Time limit, in whole minutes; 0: the partition's.")
    notice: Annotated[Seconds, Field(le=LONGEST_NOTICE_SECONDS)] = Field(
        default=300.0, description="Before the time limit, ranks are told to save and end; 0: they are not."
    )
    requeue: Flag = Field(
        default=True, description="The job waits in the queue again after that, or when a node fails."
    )
    cpus_per_task: Degree | None = Field(default=None, description="CPU cores a rank; default: Slurm's.")
    extra: tuple[SlurmOption, ...] = Field(
        default=(), description="Further options of sbatch, such as `--exclusive`."
    )


class KubernetesSection(Section):
    """The job object of Kubernetes and its pods, one a node; GPUs a pod are `cluster.gpus_per_node`."""

    kind: Literal["pytorchjob", "mpijob", "jobset"] = Field(
        default="pytorchjob",
        description="Kubeflow's PyTorchJob or MPIJob, or a JobSet: whose controller the cluster has.",
    )
    namespace: KubernetesLabel | None = Field(
        default=None, description="Default: that of your kubeconfig's context."
    )
    image: Image | None = Field(default=None, description="Image of the pods, with dsforge[train] in it.")
    python: MountPath | Literal["python3"] = Field(
        default="python3", description="The image's Python that has dsforge."
    )
    volumes: dict[KubernetesName, MountPath] = Field(
        default_factory=dict,
        description="Claims and where they are mounted, on this host as in the pods: "
        "the recipe's folder, its data and the runs lie there.",
    )
    gpu_resource: KubernetesKey = Field(
        default="nvidia.com/gpu", description="What a pod asks for to get GPUs."
    )
    resources: dict[KubernetesKey, Quantity] = Field(
        default_factory=dict, description="What else a pod asks for, such as `cpu`, `memory`, `rdma/hca`."
    )
    service_account: KubernetesName | None = Field(default=None, description="Default: the namespace's.")
    image_pull_secrets: tuple[KubernetesName, ...] = Field(
        default=(), description="Secrets of the image's registry."
    )
    node_selector: dict[KubernetesKey, KubernetesValue] = Field(
        default_factory=dict, description="Labels that the nodes must have."
    )
    tolerations: tuple[Toleration, ...] = Field(
        default=(), description="Taints that the pods bear, as `nvidia.com/gpu=present:NoSchedule`."
    )
    labels: dict[KubernetesKey, KubernetesValue] = Field(
        default_factory=dict, description="Labels of the job object, such as Kueue's queue name."
    )
    annotations: dict[KubernetesKey, EnvValue] = Field(
        default_factory=dict, description="Annotations of the pods, such as further networks."
    )


class PbsSection(Section):
    """What a PBS job asks for besides nodes, ranks and GPUs, which `cluster` says."""

    queue: PbsName | None = Field(default=None, description="Default: the cluster's.")
    project: PbsName | None = Field(default=None, description="Project of the job.")
    account: PbsName | None = Field(default=None, description="Account that is charged.")
    time: SlurmTime = Field(default=0.0, description="Time limit; 0: the queue's.")
    notice: Seconds = Field(
        default=300.0, description="Before the time limit, ranks are told to save and end; 0: they are not."
    )
    cpus_per_rank: Degree = Field(default=1, description="CPU cores a rank.")
    place: Literal["scatter", "scatter:excl", "scatter:exclhost", "scatter:shared"] = Field(
        default="scatter", description="How nodes are shared with other jobs; each chunk is another host."
    )
    resources: PbsResources = Field(
        default_factory=dict, description="Further resources of a node, such as `mem: 400gb`."
    )
    rerun: Flag = Field(default=False, description="The job starts again when a node fails.")
