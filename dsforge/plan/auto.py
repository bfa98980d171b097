"""Resolves what the user left open, and says why."""

from __future__ import annotations

from dataclasses import dataclass, field

from dsforge.catalog.engines.capabilities import Capabilities, capabilities
from dsforge.catalog.tables import Hardware
from dsforge.cost.memory.constants import keeper_of
from dsforge.cost.states import Shares, Total, off_the_gpu
from dsforge.external.vocabulary import vocab_divisor
from dsforge.layout.batch import BatchTriple, solve
from dsforge.layout.offload import least_stage
from dsforge.layout.optimizers import moments
from dsforge.layout.shape import Shape, padded_vocab
from dsforge.layout.stages import StageLayers, assign, held
from dsforge.plan.program import engine_of
from dsforge.plan.types import Decision
from dsforge.recipe.settled import SettledRecipe

DEFAULT_STEPS = 100
DEFAULT_EVAL_SAMPLES = 256
"""Samples of a validation: its mean is then some sixteen times as steady as the loss of one sample."""
ROOM_FOR_STATES = 0.6
"""Share of a GPU that model states and fp32 sums of gradients may take before `zero: auto` goes one stage
higher; the rest is left to activations, buffers and fragmentation."""


@dataclass(slots=True)
class Resolved:
    """Degrees and sizes as far as they could be resolved; None where a rule will say why not."""

    dp: int | None = None
    zero: int | None = None
    micro: int | None = None
    batch: BatchTriple | None = None
    steps: int | None = None
    eval_samples: int = 0
    padded_vocab: int | None = None
    """The vocabulary as the trainer's layers hold it."""
    stages: tuple[StageLayers, ...] = ()
    shares_of_stage: tuple[Shares, ...] = ()
    """Parameters a rank of each stage holds, vocabulary padded."""
    fullest: Total | None = None
    """What the fullest rank holds."""
    decisions: list[Decision] = field(default_factory=list)

    def decide(self, key: str, value: object, why: str) -> None:
        """Note where a value came from."""
        self.decisions.append(Decision(key=key, value=value, why=why))


def resolve_autos(recipe: SettledRecipe, shape: Shape, hardware: Hardware) -> Resolved:
    """Return every value that arithmetic can fix; never changes what the user wrote."""
    out = Resolved()
    _data_parallel(recipe, out)
    _stages(recipe, shape, out)
    _zero(recipe, hardware, out)
    _batch(recipe, out)
    _steps(recipe, out)
    _validation(recipe, out)
    if out.zero is not None:
        out.fullest = _fullest(recipe, out, out.zero)
    return out


def _data_parallel(recipe: SettledRecipe, out: Resolved) -> None:
    parallel, cluster = recipe.parallel, recipe.cluster
    devices = cluster.nodes * cluster.gpus_per_node
    model_parallel = parallel.tp * parallel.pp * parallel.cp
    whole, rest = divmod(devices, model_parallel)
    if parallel.dp == "auto":
        if whole and not rest:
            out.dp = whole
            several = "TP x PP x CP" if parallel.cp > 1 else "TP x PP"
            out.decide("parallel.dp", whole, f"{devices} ranks / ({several}) {model_parallel}")
    elif parallel.dp * model_parallel == devices:
        out.dp = parallel.dp


def _stages(recipe: SettledRecipe, shape: Shape, out: Resolved) -> None:
    parallel = recipe.parallel
    tp, pp, cp, vp, ep = parallel.tp, parallel.pp, parallel.cp, parallel.vp, parallel.ep
    if pp * vp > shape.layers:
        return
    vocab = padded_vocab(shape.vocab, tp, vocab_divisor(recipe))
    out.padded_vocab = vocab
    out.stages = tuple(assign(shape, pp, parallel.partition, vocab, vp))
    if out.dp is None:
        return
    copies = out.dp * cp
    kept = moments(recipe.optimizer.type, recipe.optimizer.momentum)
    keeper = keeper_of(engine_of(recipe))
    for stage in out.stages:
        one = held(shape, stage, vocab * capabilities(recipe.trainer).tables(tp), tp, ep)
        expert_copies = max(1, tp * copies // ep)
        out.shares_of_stage += (Shares(one.shared, copies, one.experts, expert_copies, kept, keeper),)


def _fullest(recipe: SettledRecipe, out: Resolved, zero: int) -> Total | None:
    off = states_off_the_gpu(recipe, zero)
    totals = [shares.total(recipe.train.precision, zero, off) for shares in out.shares_of_stage]
    return max(totals, key=lambda one: one.bytes, default=None)


def states_off_the_gpu(recipe: SettledRecipe, zero: int) -> frozenset[str]:
    """Return the kinds of states that a recipe offloads; without a GPU all stay where they are."""
    places = recipe.offload
    if recipe.cluster.gpu == "cpu":
        return frozenset()
    return off_the_gpu(
        recipe.train.precision,
        zero,
        optimizer=places.optimizer != "none",
        parameters=places.parameters != "none" and zero >= 3,
    )


def _zero(recipe: SettledRecipe, hardware: Hardware, out: Resolved) -> None:
    wanted = recipe.parallel.zero
    if wanted != "auto":
        out.zero = wanted
        return
    decided = _given_stage(recipe, out) or _fitting_stage(recipe, hardware, out)
    if decided is not None:
        out.zero, why = decided
        out.decide("parallel.zero", out.zero, why)


def _given_stage(recipe: SettledRecipe, out: Resolved) -> tuple[int, str] | None:
    """Return the one ZeRO stage that trainer, pipeline, offload or a single replica leave, and why."""
    trainer = capabilities(recipe.trainer)
    honoured = trainer.honours.get("parallel.zero")
    if honoured is not None and honoured.values[1:] == ("auto",):
        return honoured.values[0], f"the only stage: {honoured.why}"
    if recipe.parallel.pp > 1:
        why = "with a pipeline DeepSpeed takes ZeRO-1 at most, and clips right with it"
        return 1, why if trainer.deepspeed else honoured.why if honoured else why
    return _stage_of_replicas(recipe, out, trainer) if out.dp is not None and out.shares_of_stage else None


def _stage_of_replicas(recipe: SettledRecipe, out: Resolved, trainer: Capabilities) -> tuple[int, str] | None:
    """Return the one ZeRO stage that offload or a single replica leave, and why."""
    assert out.dp is not None
    offload, is_single = recipe.offload, out.dp * recipe.parallel.cp == 1
    if trainer.offloads_together and offload.parameters != "none":
        return 3, "the only one whose shards of parameters are offloaded"
    least = least_stage(offload.optimizer, offload.parameters) if trainer.deepspeed else 0
    if least == 3 or (least and is_single):
        return least, "the lowest under which DeepSpeed offloads to these places"
    if is_single and recipe.train.precision == "fp32" and trainer.takes("parallel.zero", 0):
        return 0, "one replica: there is nothing to share states with"
    if is_single and trainer.deepspeed:
        return 1, "one replica; in 16 bits DeepSpeed's ZeRO-0 trains wrongly (DSF122)"
    return None


def _fitting_stage(recipe: SettledRecipe, hardware: Hardware, out: Resolved) -> tuple[int, str] | None:
    """Return the lowest ZeRO stage whose states leave room for the rest, and why."""
    if out.dp is None or not out.shares_of_stage:
        return None
    room = hardware.memory_bytes
    if room is None:
        return 1, "the machine's memory is not catalogued"
    limit = f"{ROOM_FOR_STATES:.0%} of the GPU"
    trainer = capabilities(recipe.trainer)
    most = trainer.zero_under_tp if recipe.parallel.tp > 1 else 3
    stages = [stage for stage in range(1, most + 1) if trainer.takes("parallel.zero", stage)]
    for stage in stages:
        need = _fullest(recipe, out, stage)
        if need is not None and need.bytes <= ROOM_FOR_STATES * room:
            return stage, f"the lowest with model states and fp32 sums within {limit}"
    return stages[-1], f"the highest: with any, model states and fp32 sums take more than {limit}"


def _batch(recipe: SettledRecipe, out: Resolved) -> None:
    batch = recipe.batch
    if batch.micro == "auto":
        out.micro = 1
        out.decide("batch.micro", 1, "the smallest activations and, with a pipeline, the smallest bubble")
    else:
        out.micro = batch.micro
    if out.dp is not None:
        out.batch = solve(batch.global_size, out.micro, out.dp)
        if out.batch:
            why = f"global {batch.global_size} / (micro {out.micro} x DP {out.dp})"
            out.decide("batch.accumulation_steps", out.batch.accumulation_steps, why)


def _steps(recipe: SettledRecipe, out: Resolved) -> None:
    train = recipe.train
    if train.steps is not None:
        out.steps = train.steps
    elif train.tokens is not None:
        per_step = recipe.batch.global_size * recipe.batch.seq_len
        out.steps = -(-train.tokens // per_step)
        out.decide("train.steps", out.steps, f"{train.tokens} tokens / {per_step} a step, rounded up")
    else:
        out.steps = DEFAULT_STEPS
        out.decide("train.steps", DEFAULT_STEPS, "neither train.steps nor train.tokens is set")


def _validation(recipe: SettledRecipe, out: Resolved) -> None:
    train, size = recipe.train, recipe.batch.global_size
    if not train.eval_every:
        return
    if train.eval_samples is not None:
        out.eval_samples = train.eval_samples
        return
    batches = -(-DEFAULT_EVAL_SAMPLES // size)
    out.eval_samples = batches * size
    why = f"at least {DEFAULT_EVAL_SAMPLES}, in whole global batches of {size}"
    out.decide("train.eval_samples", out.eval_samples, why)
