"""The sections of a recipe. Every field is either honoured or refused by a rule, never ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from dsforge.recipe.host_choice import HostChoice
from dsforge.recipe.interface import InterfaceText
from dsforge.recipe.job_sections import KubernetesSection, PbsSection, SlurmSection
from dsforge.recipe.quantities import (
    Argument,
    Count,
    Degree,
    EntryText,
    EnvName,
    EnvValue,
    Epsilon,
    Flag,
    FolderText,
    Name,
    NonNegative,
    NotBoolean,
    PathText,
    Positive,
    PositiveCount,
    Rate,
    RateOrZero,
    Ratio,
    Samples,
    Seconds,
    SecondsOrOff,
    Steps,
    StepsOrNone,
    Tokens,
)
from dsforge.recipe.section import Section


class ClusterSection(Section):
    """The machines."""

    nodes: Degree = Field(default=1, description="Hosts.")
    gpus_per_node: Degree = Field(description="Ranks a host: one a GPU, or processes when gpu is cpu.")
    gpu: Name = Field(description="A name from the hardware catalogue, or cpu.")
    hostfile: PathText | None = Field(
        default=None, description="Hosts and slots in deepspeed's format; needed to render for several hosts."
    )
    include: HostChoice | None = Field(
        default=None,
        description="Hosts and GPUs of the hostfile to use, in deepspeed's syntax with ranges: "
        "`node[01-04]:0-3@node7`. Default: all.",
    )
    exclude: HostChoice | None = Field(
        default=None, description="Hosts and GPUs to leave out of these, in the same syntax."
    )
    spares: Annotated[Count, Field(le=1024)] = Field(
        default=0,
        description="Hosts besides these `nodes`, the last of the hostfile or of the Slurm job: "
        "a restart takes one in the place of a host that failed.",
    )
    interface: InterfaceText | None = Field(
        default=None,
        description="Network interface of the ranks: a name, a network such as 10.0.0.0/16, or auto, the one "
        "on the way to the first host. Default: NCCL's and gloo's own choice.",
    )
    fabric: Literal["auto", "infiniband", "roce", "ethernet"] = Field(
        default="auto", description="What joins the hosts; auto: what NCCL finds on each."
    )
    shape: Name | None = Field(
        default=None, description="A rented machine from the catalogue, whose network estimates take."
    )
    price_per_gpu_hour: Positive | None = Field(
        default=None, description="What a GPU costs an hour, in any currency; `plan` tells the run's."
    )
    power_overhead: Annotated[Positive, Field(ge=1, le=10)] = Field(
        default=1.2, description="Power of the whole site over the boards' (PUE and hosts), for energy."
    )
    storage_gb_per_s: Positive | None = Field(
        default=None,
        description="GB/s that all ranks together write checkpoints with; `plan` tells the time.",
    )


Auto = Literal["auto"]
"""What the planner decides."""


class ParallelSection(Section):
    """The layout: tensor x pipeline x context x data parallelism, experts, and ZeRO; auto: the fastest."""

    tp: Degree | Auto = Field(default=1, description="Tensor-parallel degree.")
    pp: Degree | Auto = Field(default=1, description="Pipeline stages.")
    vp: Degree | Auto = Field(default=1, description="Virtual stages a rank (interleaved schedule).")
    cp: Degree | Auto = Field(
        default=1,
        description="Context-parallel degree: ranks that share out each sequence; twice as many divide its "
        "tokens (trainer megatron-core, or Megatron-LM).",
    )
    ep: Degree | Auto = Field(
        default=1, description="Expert-parallel degree: ranks that share out the experts, whole ones each."
    )
    dp: Degree | Auto = Field(default="auto", description="Replicas; auto: what the cluster leaves.")
    zero: Annotated[Literal[0, 1, 2, 3, "auto"], NotBoolean] = Field(
        default="auto",
        description="ZeRO stage; auto alone: 1 with a pipeline, else the lowest whose states and fp32 sums "
        "fit; with another auto: the fastest.",
    )
    schedule: Literal["gpipe", "1f1b", "interleaved", "auto"] = Field(
        default="1f1b", description="Pipeline schedule; auto: interleaved where there are virtual stages."
    )
    partition: Literal["uniform", "parameters", "measured", "auto"] = Field(
        default="auto",
        description="How layers are dealt to stages: equal numbers, equal parameters, or equal measured "
        "times; auto: parameters, or as an external program does it.",
    )
    partition_weights: PathText | None = Field(
        default=None,
        description="With partition: measured, the file that `dsforge tune --layers` wrote.",
    )
    sequence_parallel: Flag | Auto = Field(
        default=False, description="Split norm activations over the TP ranks."
    )


class OffloadSection(Section):
    """Where states live besides the GPU."""

    optimizer: Literal["none", "cpu", "nvme", "auto"] = Field(default="none", description="Optimizer states.")
    parameters: Literal["none", "cpu", "nvme", "auto"] = Field(
        default="none", description="Parameters (ZeRO-3)."
    )
    path: PathText | None = Field(default=None, description="Folder on the NVMe disk.")


class BatchSection(Section):
    """The batch: global = micro x accumulation steps x DP, solved exactly."""

    global_size: Samples = Field(alias="global", description="Samples an optimizer step.")
    micro: Samples | Literal["auto"] = Field(
        default="auto",
        description="Samples a replica holds at once; auto alone: 1; with another auto: the fastest.",
    )
    seq_len: Annotated[Tokens, Field(le=10**8)] = Field(description="Tokens a sample.")


class ChecksSection(Section):
    """Checks of a run by itself; off unless asked for."""

    gradients_every: StepsOrNone = Field(
        default=0, description="Steps between comparisons of the reduced gradients of replicas; 0: none."
    )
    parameters_every: StepsOrNone = Field(
        default=0,
        description="Steps between comparisons of the parameters that several ranks hold; then also made "
        "before the first step and before a checkpoint; 0: none.",
    )
    modules: Flag = Field(
        default=False, description="Watch every module's output, to name the first that is not finite."
    )


class TrainSection(Section):
    """Length, precision and memory levers."""

    steps: Steps | None = Field(
        default=None, description="Optimizer steps; default: 100 when tokens is not given either."
    )
    tokens: Tokens | None = Field(
        default=None, description="Tokens to train on, instead of steps; rounded up to whole steps."
    )
    eval_every: StepsOrNone = Field(
        default=0, description="Steps between validations, which also follow the last step; 0: none."
    )
    eval_samples: Samples | None = Field(
        default=None,
        description="Samples of a validation, whole global batches, the same every time; "
        "default: 256 in whole batches.",
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        default="bf16",
        description="Precision of weights and math; fp16 has a loss scale that adapts, and needs a GPU "
        "under DeepSpeed.",
    )
    recompute: Literal["none", "selective", "full", "auto"] = Field(
        default="none",
        description="Activations computed again in the backward pass instead of kept: "
        "none, those of attention alone, or all of a layer.",
    )
    recompute_every: Annotated[PositiveCount, Field(le=10_000)] = Field(
        default=1, description="With recompute: full, layers of a block of which only the input is kept."
    )
    dropout: Ratio = Field(
        default=0.0, description="Share dropped of embeddings and of what attention and MLP add."
    )
    attention_dropout: Ratio = Field(default=0.0, description="Share dropped of attention probabilities.")
    balance_loss: RateOrZero = Field(
        default=0.0, description="Coefficient of the loss that keeps experts evenly used; 0: none."
    )
    balance_over: Literal["layer", "model"] = Field(
        default="layer",
        description="What that loss is taken over: each layer by itself, summed, or all layers together, "
        "as Hugging Face's models do.",
    )
    seed: Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)] = Field(
        default=1234, description="Seed of weights, data order and dropout."
    )
    checks: ChecksSection = Field(
        default_factory=ChecksSection, description="What the run compares between its ranks."
    )


class OptimizerSection(Section):
    """The optimizer and its learning rate."""

    type: Literal["adamw", "sgd", "lion"] = Field(default="adamw", description="The optimizer.")
    lr: Rate = Field(default=3.0e-4, description="Peak learning rate.")
    min_lr: RateOrZero = Field(default=0.0, description="Learning rate that the decay ends at.")
    lr_schedule: Literal["cosine", "linear", "constant"] = Field(
        default="cosine", description="Decay after warm-up."
    )
    warmup_steps: StepsOrNone = Field(default=0, description="Steps of linear warm-up.")
    weight_decay: RateOrZero = Field(default=0.1, description="Not applied to biases and norms.")
    betas: tuple[Ratio, Ratio] = Field(
        default=(0.9, 0.95),
        description="adamw, lion: decay of the two moments; lion keeps one of them.",
    )
    momentum: Ratio = Field(default=0.9, description="sgd: decay of the sum of gradients; 0: no sum is kept.")
    eps: Epsilon = Field(default=1.0e-8, description="adamw: added to the denominator.")
    grad_clip: NonNegative = Field(default=1.0, description="Largest global gradient norm; 0: no clipping.")


def _one_prefix(value: Any) -> Any:
    return [[1.0, value]] if isinstance(value, str) else value


Blend = Annotated[
    tuple[tuple[Positive, PathText], ...],
    Field(min_length=1),
    BeforeValidator(_one_prefix),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "array",
                        "prefixItems": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}],
                        "minItems": 2,
                        "maxItems": 2,
                    },
                },
            ]
        }
    ),
]


class DataSection(Section):
    """What is trained on; a recipe without this section uses the built-in corpus."""

    train: Blend = Field(
        description="A prefix of a .bin/.idx pair, or [weight, prefix] of several, weights relative."
    )
    valid: Blend | None = Field(
        default=None, description="Validation sets, as train; needs train.eval_every."
    )
    tokenizer: PathText | None = Field(default=None, description="The tokenizer.json the data was made with.")
    workers: Annotated[Count, Field(le=1024)] = Field(default=2, description="Loader workers a rank.")


class CheckpointSection(Section):
    """When and where states are saved."""

    dir: PathText | None = Field(default=None, description="Default: inside the run directory.")
    every_steps: StepsOrNone = Field(
        default=0, description="Steps between saves; 0: none but the one at the end."
    )
    at_end: Flag = Field(default=True, description="Save after the last step; false for a benchmark.")
    keep: Count | Literal["auto"] = Field(
        default="auto",
        description="Newest checkpoints kept; 0: all; auto: 3, or as an external program does it.",
    )
    resume: PathText = Field(
        default="auto", description="auto: newest whole checkpoint if any; never; or a checkpoint's path."
    )
    init: PathText | None = Field(
        default=None,
        description="A folder with a Hugging Face model (config.json, *.safetensors) whose weights "
        "the run starts from; default: weights drawn from train.seed.",
    )


class LaunchSection(Section):
    """How ranks are started and watched."""

    launcher: Literal[
        "auto", "local", "ssh", "pdsh", "openmpi", "mpich", "slurm", "torchrun", "kubernetes", "pbs"
    ] = Field(
        default="auto",
        description="The program that starts the ranks; auto: local on one node, pdsh with a hostfile.",
    )
    rendezvous: Literal["static", "c10d"] = Field(
        default="static", description="How torchrun's agents meet; ranks stand as planned either way."
    )
    slurm: SlurmSection = Field(default_factory=SlurmSection, description="What a Slurm job asks for.")
    kubernetes: KubernetesSection = Field(
        default_factory=KubernetesSection, description="The job object of Kubernetes."
    )
    pbs: PbsSection = Field(default_factory=PbsSection, description="What a PBS job asks for.")
    env: dict[EnvName, EnvValue] = Field(default_factory=dict, description="Variables set on every rank.")
    env_from: tuple[EnvName, ...] = Field(
        default=(), description="Names of secrets passed from the caller's environment, never written."
    )
    restarts: Annotated[Count, Field(le=1000)] = Field(
        default=0, description="New attempts after what may pass, such as a killed rank or a lost host."
    )
    restart_window: Seconds = Field(
        default=0.0, description="restarts counts those within this time; 0: those of the whole run."
    )
    restart_backoff: Annotated[Seconds, Field(le=60)] = Field(
        default=1.0,
        description="Wait before the second restart in a row without a new checkpoint, twice as long before "
        "each further one, a minute at most; the first starts at once. 0: no wait.",
    )
    shrink: Flag = Field(
        default=False,
        description="A restart plans for fewer nodes where a host failed and no spare is left, "
        "if the recipe allows it; the batch stays.",
    )
    watchdog: SecondsOrOff = Field(
        default=900.0, description="Longest silence before a run is called hung, 1s at least; 0: off."
    )
    rendezvous_timeout: Seconds = Field(default=300.0, description="For all ranks to meet; 0: no limit.")
    collective_timeout: Seconds = Field(
        default=600.0, description="For one collective operation; 0: no limit."
    )
    stop_timeout: Seconds = Field(
        default=300.0,
        description="From a request to stop to its checkpoint, then ranks are killed; 0: no limit.",
    )


class MonitorSection(Section):
    """Sinks for metrics besides `metrics.jsonl`."""

    tensorboard: Flag = Field(default=False, description="Event files in the attempt's directory.")
    wandb: Flag = Field(default=False, description="Weights & Biases.")
    prometheus: Flag = Field(default=False, description="OpenMetrics text file.")


class ExternalSection(Section):
    """The program that `trainer: external` starts instead of a trainer of dsforge."""

    flavour: Literal["megatron-deepspeed", "megatron-lm", "gpt-neox", "script"] = Field(
        description="Which program; script: any that reads RANK and WORLD_SIZE."
    )
    path: FolderText = Field(description="Folder of the checkout, or of the script, on every host.")
    entry: EntryText | None = Field(
        default=None, description="File in that folder that each rank runs; default: the flavour's."
    )
    arguments: tuple[Argument, ...] = Field(
        default=(),
        description="Options passed on, of gpt-neox KEY=VALUE; words after `--` on a command line join them.",
    )
