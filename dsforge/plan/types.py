"""The Plan: every value a run needs, resolved. Its JSON is `plan.json`, read by the trainers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from dsforge.catalog.families import GATED, Experts, LatentAttention
from dsforge.plan.frozen import Frozen
from dsforge.plan.job_types import Kubernetes, Pbs, Slurm

SCHEMA_VERSION = 1
PRINTED = ("estimate", "schedule", "layouts", "memory", "calibration")
"""What `plan --json` prints beside the plan."""


class Model(Frozen):
    """The shape of the model. `padded_vocab` is what the trainer's layers hold; padding is masked out.

    A plan shows any family; a rule (DSF141) keeps one that the trainer does not build from its ranks.
    """

    name: str
    arch: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_hidden: int
    vocab: int
    padded_vocab: int
    max_positions: int
    tied: bool
    norm: Literal["layernorm", "rmsnorm"]
    norm_eps: float
    activation: str
    position: Literal["learned", "rope", "alibi"]
    rope_theta: float
    linear_bias: bool
    """All matrices of the layers have a bias."""
    qkv_bias: bool
    """Queries, keys and values have one."""
    qk_norm: bool
    """Queries and keys are normalised over the width of a head."""
    init_std: float
    parallel_residual: bool = False
    """Attention and MLP read the same input and are added together."""
    rotary_fraction: float = 1.0
    """Share of a head that RoPE turns."""
    window: int | None = None
    """Tokens that layers look back, each one itself among them; None: all."""
    window_layers: tuple[int, ...] | None = None
    """The layers with the window; None: all."""
    unit_offset_norm: bool = False
    """Norms multiply by one plus their weight."""
    scaled_embedding: bool = False
    """Embeddings are multiplied by the root of the width."""
    hf_config: dict[str, Any] | None = None
    """Values of a Hugging Face `config.json`, for a trainer that builds the model from one."""
    experts: Experts | None = None
    latent: LatentAttention | None = None

    @property
    def gated(self) -> bool:
        """The MLP has two input matrices, one of which gates the other."""
        return self.activation in GATED

    @property
    def rotary_dim(self) -> int:
        """Channels of a head that RoPE turns."""
        return int(self.head_dim * self.rotary_fraction)

    def window_of(self, layer: int) -> int | None:
        """Return the tokens that a layer looks back, None for all."""
        return self.window if self.window_layers is None or layer in self.window_layers else None


class Stage(Frozen):
    """One pipeline stage: layers [first_layer, first_layer + layers), parameters of the whole stage.

    With virtual stages the layers are equal blocks, the first from `first_layer`.
    """

    stage: int
    first_layer: int
    layers: int
    has_embedding: bool
    has_head: bool
    parameters: int
    parameters_by_component: dict[str, int]
    state_bytes_per_rank: dict[str, int]
    fp32_gradient_sum_bytes_per_rank: int
    further_blocks: tuple[int, ...] = ()
    """With virtual stages: first layers of the other ones, each as large as the first."""

    @property
    def total_bytes_per_rank(self) -> int:
        """Model states and fp32 sums of gradients; activations and buffers come on top."""
        return sum(self.state_bytes_per_rank.values()) + self.fp32_gradient_sum_bytes_per_rank


class Layout(Frozen):
    """Degrees and placement. Rank = ((stage x DP + replica) x CP + part) x TP + shard: TP innermost.

    `ep`: ranks, neighbours within a stage, that share out the experts. `vp`: virtual stages of a stage.
    """

    tp: int
    pp: int
    dp: int
    vp: int = 1
    cp: int = 1
    ep: int = 1
    world_size: int
    nodes: int
    gpus_per_node: int
    zero: int
    schedule: str
    partition: str
    partition_weights_sha256: str | None = None
    """Of the canonical JSON of the file that layers are dealt out by."""
    sequence_parallel: bool = False
    engine: Literal["pipeline", "module"]
    stages: tuple[Stage, ...]

    @property
    def expert_tp(self) -> int:
        """TP of the experts: those that several ranks share out stay whole."""
        return self.tp if self.ep == 1 else 1

    @property
    def fullest_rank_bytes(self) -> int:
        """The largest total of a rank."""
        return max(stage.total_bytes_per_rank for stage in self.stages)


class Offload(Frozen):
    """Where optimizer states and parameters live: none (the GPU), cpu or nvme, there under `path`."""

    optimizer: Literal["none", "cpu", "nvme"] = "none"
    parameters: Literal["none", "cpu", "nvme"] = "none"
    path: str | None = None


class Batch(Frozen):
    """global_size = micro x accumulation_steps x DP, exactly. Sequence length in tokens."""

    global_size: int
    micro: int
    accumulation_steps: int
    seq_len: int


class Checks(Frozen):
    """How a run checks itself: steps between comparisons, 0 for none; `modules`: outputs are watched."""

    gradients_every: int = 0
    parameters_every: int = 0
    modules: bool = False


class Train(Frozen):
    """Length, precision, recomputation, dropout and seed; `recompute_every`: layers of a recomputed block.

    `balance_loss` is the coefficient of the loss that keeps experts evenly used (Fedus et al. 2021, equations
    4 to 6), of which the gradient alone is taken: over each layer by itself, summed, or as Hugging Face's
    models have it, with the choices and chances of all layers averaged first and choices counted
    `experts.active` times as much.

    Validation follows every `eval_every`-th step and the last, on the same `eval_samples` samples; both 0:
    none.
    """

    steps: int
    eval_every: int
    eval_samples: int
    precision: Literal["fp32", "bf16", "fp16"]
    recompute: Literal["none", "selective", "full"]
    recompute_every: int = 1
    dropout: float = 0.0
    attention_dropout: float = 0.0
    balance_loss: float = 0.0
    balance_over: Literal["layer", "model"] = "layer"
    seed: int
    checks: Checks = Checks()


class Optimizer(Frozen):
    """The optimizer and its learning-rate schedule; see `docs/reference/vocabulary.md` for the formula."""

    type: Literal["adamw", "sgd", "lion"]
    lr: float
    min_lr: float
    lr_schedule: Literal["cosine", "linear", "constant"]
    warmup_steps: int
    weight_decay: float
    betas: tuple[float, float]
    momentum: float = 0.9
    eps: float
    grad_clip: float


class DataSet(Frozen):
    """One indexed data set of a blend: prefix from the recipe's folder, weight relative to the others'."""

    weight: float
    prefix: str


class Data(Frozen):
    """The blends trained on and validated on; where `builtin_vocab` is set, parts of the built-in corpus."""

    train: tuple[DataSet, ...]
    valid: tuple[DataSet, ...]
    builtin_vocab: int | None
    tokenizer: str | None
    workers: int


class Checkpoint(Frozen):
    """Where and when to save. `dir` None means the run directory; every_steps 0: only `at_end`, if at all."""

    dir: str | None
    every_steps: int
    at_end: bool = True
    keep: int
    resume: str
    init: str | None = None
    """Folder with the Hugging Face weights that a run starts from, relative to the recipe's."""


class Launch(Frozen):
    """How the ranks are started and watched; times in seconds.

    `launcher` is None where there are several nodes and nothing says how ranks are started on them.
    """

    launcher: (
        Literal["local", "ssh", "pdsh", "openmpi", "mpich", "torchrun", "slurm", "kubernetes", "pbs"] | None
    )
    slurm: Slurm | None = None
    kubernetes: Kubernetes | None = None
    pbs: Pbs | None = None
    rendezvous: Literal["static", "c10d"] = "static"
    """How torchrun's agents find each other."""
    interface: str | None = None
    """What each host finds its own network interface by: `auto`, or a network such as 10.0.0.0/16."""
    env: dict[str, str]
    env_from: tuple[str, ...]
    restarts: int
    restart_window_seconds: float = 0.0
    restart_backoff_seconds: float = 1.0
    shrink: bool = False
    watchdog_seconds: float
    rendezvous_timeout_seconds: float
    collective_timeout_seconds: float
    stop_timeout_seconds: float


class Word(Frozen):
    """One argument of a program; with `base` a path from a place of the run (records/program.py)."""

    text: str
    base: str | None = None


class Program(Frozen):
    """The external program that every rank runs: a file in a folder, its arguments or its configuration.

    `configuration_bases` names, by dotted key, what the paths in the configuration start from.
    """

    flavour: str
    path: str
    entry: str
    arguments: tuple[Word, ...]
    configuration: dict[str, Any] | None = None
    configuration_bases: dict[str, str] = Field(default_factory=dict)


class Decision(Frozen):
    """Where a value that the user left open came from."""

    key: str
    value: Any
    why: str


class Nominal(Frozen):
    """Back-of-the-envelope figures as the field quotes them: the name's size times bytes a parameter."""

    parameters: float
    parameters_source: str
    bytes_per_parameter: int
    bytes_formula: str
    model_state_bytes: float
    model_parallel_ranks: int
    bytes_per_gpu: float


class Parameters(Frozen):
    """Exact parameter counts, without vocabulary padding, tied weights counted once.

    `active`: those that one token passes through, fewer than `total` where there are experts; None in
    plans of an older version.
    """

    total: int
    active: int | None = None
    by_component: dict[str, int]


class Plan(Frozen):
    """Everything that rendering, launching and training need; the recipe is not read again."""

    schema_version: int = SCHEMA_VERSION
    dsforge_version: str
    name: str
    trainer: str
    accelerator: Literal["cpu", "cuda"]
    gpu: str
    model: Model
    parameters: Parameters
    layout: Layout
    offload: Offload = Offload()
    batch: Batch
    train: Train
    optimizer: Optimizer
    data: Data
    checkpoint: Checkpoint
    launch: Launch
    external: Program | None = None
    sinks: tuple[str, ...]
    """Keys of the recipe's `monitor` that are on: where metrics go besides `metrics.jsonl`."""
    hostfile: str | None
    include: str | None = None
    exclude: str | None = None
    """Which hosts and GPUs of the hostfile, `cluster.include` and `cluster.exclude`."""
    spares: int = 0
    """Hosts of these that are kept for restarts, behind the planned ones."""
    nominal: Nominal
    decisions: tuple[Decision, ...]
    findings: tuple[dict[str, Any], ...]

    @model_validator(mode="before")
    @classmethod
    def _without_estimate(cls, data: Any) -> Any:
        """Take what `plan --json` prints, too: a plan, and beside it what it is estimated to take."""
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if key not in PRINTED}
        return data

    def to_json_value(self) -> dict[str, Any]:
        """Return the JSON-ready mapping that `plan.json` holds."""
        return self.model_dump(mode="json")
