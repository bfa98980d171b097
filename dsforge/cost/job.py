"""What a step's time depends on: a model, how it is laid out, and the machine under it. Pure numbers."""

from __future__ import annotations

from dataclasses import dataclass

from dsforge.layout.optimizers import ADAM_MOMENTS


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: `width` of each; `shared` ones every token passes, `chosen` ones are its own.

    `dense_layers`: how many layers, the first ones, have a plain MLP instead.
    """

    count: int
    chosen: int
    width: int
    shared: float = 0
    dense_layers: int = 0


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434).

    Ranks of the compressed query (0: none) and key-value, and widths of a head: without position, with
    position, of the value.
    """

    query_rank: int
    kv_rank: int
    plain: int
    rotary: int
    value: int


@dataclass(frozen=True, slots=True)
class Work:
    """A decoder's layers: widths in elements, `seq_len` in tokens. `gated`: the MLP has a third matrix.

    `vocab` as the layers hold it, padded. `tied`: the head is the embedding. `bias`: of all matrices of the
    layers. `norm_bias`: LayerNorm. `positions`: learned ones. `dropout`: some is on, so masks are kept.
    `mtp`: layers that predict further tokens, each with a pass of the head.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_hidden: int
    vocab: int
    seq_len: int
    gated: bool
    experts: Experts | None = None
    latent: Latent | None = None
    tied: bool = False
    bias: bool = False
    norm_bias: bool = False
    positions: int = 0
    dropout: bool = False
    mtp: int = 0

    @property
    def score_width(self) -> float:
        """Width of all heads in the products of the attention core: the mean of queries and values."""
        if self.latent is None:
            return self.attention_width
        return self.heads * (self.latent.plain + self.latent.rotary + self.latent.value) / 2

    @property
    def projections(self) -> tuple[tuple[int, int], ...]:
        """Attention's matrices before its output one: depth and columns; TP splits the last of each path."""
        latent = self.latent
        if latent is None:
            return ((self.hidden, self.attention_width + 2 * self.kv_width),)
        query = self.heads * (latent.plain + latent.rotary)
        kv = (latent.kv_rank, self.heads * (latent.plain + latent.value))
        down = (self.hidden, latent.query_rank + latent.kv_rank + latent.rotary)
        return (down, kv, (latent.query_rank or self.hidden, query))

    @property
    def output_width(self) -> int:
        """Width of what attention's output matrix takes."""
        return self.attention_width if self.latent is None else self.heads * self.latent.value

    @property
    def attention_parameters(self) -> int:
        """Weights of one layer's attention."""
        return sum(depth * columns for depth, columns in self.projections) + self.output_width * self.hidden

    @property
    def attention_width(self) -> int:
        """All heads together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """All key (or value) heads together."""
        return self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class Machine:
    """A GPU and its links.

    Rates: TFLOP/s of dense matrix products as measured, bytes a second of memory, and of links in one
    direction. `domain`: GPUs that the fast link joins. `fabric`: the network's kind.
    """

    generation: str
    matmul_tflops: float
    memory_bytes_per_second: float
    link_bytes_per_second: float
    network_bytes_per_second: float
    domain: int
    gpus_per_node: int
    fabric: str = "infiniband"
    measured: bool = True


@dataclass(frozen=True, slots=True)
class Job:
    """One training job. `micro` and `global_batch` in samples; `vp`: virtual stages of a pipeline stage.

    `precision`: fp32, fp16, bf16, fp8, fp4. `zero`: 0 to 3, FSDP being 3. `recompute`: none, selective (the
    attention core), operators (half of a layer's), alternate (every other layer), full. `engine`: a row of
    the calibration. `offload`: the optimizer runs on the host. `optimizer_on_disk`, `parameters_on_disk`:
    what is offloaded lies on the node's disks.

    What follows matters to memory alone. `schedule`: gpipe or 1f1b, interleaved where `vp` is more than 1;
    `vp_group`: micro-batches that a virtual stage takes in turn, PP where None. `recompute_modules`: what is
    recomputed where it is selective, in Megatron's words: core_attn, layernorm, mlp, moe, moe_act,
    mla_up_proj. `recompute_every`: layers between two kept inputs under full recomputation. `first_layers`,
    `last_layers`: of these stages where layers are not dealt out evenly; `ends_count`: embedding and loss
    count as a layer each in dealing. `loss`: plain, compiled, or chunked, which never holds all logits.
    `gathers_context`: CP's ranks gather the keys and values of all, which stay for the backward; else they
    send them on in a ring behind the attention core.
    `expert_tp`: TP of experts where it is not that of the rest; `grouped_experts`: in one kernel.
    `moments`: fp32 values that the optimizer keeps of a parameter.
    `lean_optimizer`: sums of gradients and Adam's moments in 16 bits. `deterministic`: kernels are, which
    needs cuBLAS's largest workspace. `fused_layers`: Transformer Engine's, where an engine can have them.
    `compiled`: by torch.compile.
    """

    work: Work
    machine: Machine
    engine: str
    gpus: int
    tp: int
    pp: int
    dp: int
    micro: int
    global_batch: int
    precision: str
    vp: int = 1
    cp: int = 1
    ep: int = 1
    zero: int = 0
    recompute: str = "none"
    sequence_parallel: bool = False
    flash_attention: bool = True
    offload: bool = False
    offload_parameters: bool = False
    optimizer_on_disk: bool = False
    parameters_on_disk: bool = False
    schedule: str = "1f1b"
    vp_group: int | None = None
    recompute_modules: tuple[str, ...] = ("core_attn",)
    recompute_every: int = 1
    first_layers: int | None = None
    last_layers: int | None = None
    ends_count: bool = False
    loss: str = "plain"
    gathers_context: bool = False
    expert_tp: int | None = None
    grouped_experts: bool = True
    lean_optimizer: bool = False
    moments: int = ADAM_MOMENTS
    fp8_weights: bool = False
    deterministic: bool = False
    fused_layers: bool = True
    compiled: bool = False

    @property
    def experts_split(self) -> int:
        """TP of the experts' matrices: that of the rest, unless the job says otherwise."""
        return self.expert_tp or self.tp

    @property
    def accumulation_steps(self) -> float:
        """Micro-batches of a step on one rank."""
        return max(1.0, self.global_batch / (self.dp * self.micro))

    @property
    def tokens(self) -> float:
        """Tokens of one micro-batch on one rank, before TP splits them."""
        return self.work.seq_len * self.micro / self.cp
