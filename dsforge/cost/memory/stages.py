"""Memory of a job's pipeline stages at a step's fullest moment."""

from __future__ import annotations

from dsforge.cost.job import Job
from dsforge.cost.memory.activations import layer_bytes
from dsforge.cost.memory.constants import MIB, EngineMemory, MemoryConstants, memory_constants
from dsforge.cost.memory.off_the_gpu import off_the_gpu
from dsforge.cost.memory.parameters import Held, layer, stage
from dsforge.cost.memory.states import States, states
from dsforge.cost.memory.types import StageMemory
from dsforge.cost.memory.workspaces import standing

_HALF = 2
_LASTING = ("weights", "gradients", "sums", "optimizer", "standing")
_COMPILED_LOSS = 4
"""Bytes of an entry of the logits that a compiled loss keeps more than one that works in place."""
_KEPT_LOGIT = 4
"""Bytes of an entry of the logits between the passes of a micro-batch: the softmax in fp32."""
_BUCKET = 500_000_000
"""Parameters whose gradients DeepSpeed reduces at once (`reduce_bucket_size`)."""
_LIVE = 1_000_000_000
"""Parameters that ZeRO-3 keeps gathered (`stage3_max_live_parameters`)."""


def stage_memory(job: Job, constants: MemoryConstants | None = None) -> tuple[StageMemory, ...]:
    """Return the memory of a rank of every stage, from the first to the last."""
    counts = stage_layers(job)
    begins = [sum(counts[:index]) for index in range(job.pp)]
    return tuple(_stage(job, index, begins[index], counts[index], constants) for index in range(job.pp))


def fullest(job: Job, constants: MemoryConstants | None = None) -> int:
    """Return the bytes that the allocator reserves on the fullest rank.

    Under 1F1B earlier stages keep more micro-batches: only the first, the next, which may have more layers,
    and the last, which has the head, can be it.
    """
    first, second, last = _ends(job)
    found = _stage(job, 0, 0, first, constants).reserved
    if job.pp > 1:
        begin = job.work.layers - last
        found = max(found, _stage(job, job.pp - 1, begin, last, constants).reserved)
    if job.pp > 2 and second > first:
        found = max(found, _stage(job, 1, first, second, constants).reserved)
    return found


def stage_layers(job: Job) -> list[int]:
    """Return the layers of every stage: even, earlier stages taking what is left over."""
    first, _, last = _ends(job)
    middle = job.pp - 2
    if middle < 0:
        return [job.work.layers]
    each, rest = divmod(job.work.layers - first - last, middle) if middle else (0, 0)
    return [first, *(each + (index < rest) for index in range(middle)), last]


def _ends(job: Job) -> tuple[int, int, int]:
    """Return layers of the first stage, of the second and of the last."""
    layers, pp = job.work.layers, job.pp
    if pp == 1:
        return layers, layers, layers
    first, last = job.first_layers, job.last_layers
    if job.ends_count:
        first = last = (layers + 2) // pp - 1
    even = pp - (first is not None) - (last is not None)
    rest = layers - (first or 0) - (last or 0)
    if first is None:
        first = -(-rest // even)
        rest, even = rest - first, even - 1
    if last is None:
        last = rest // even
        rest, even = rest - last, even - 1
    return first, -(-rest // even) if even else last, last


def kept_layers(job: Job, index: int, layers: int) -> float:
    """Return for how many layers a stage keeps the activations of one micro-batch at its fullest moment.

    GPipe keeps all micro-batches; 1F1B as many as stages follow, and one; interleaved, of its v parts,
    2 (p - i - 1) + (v - 1) g + 1 with g micro-batches in turn (Narayanan et al. 2021, arXiv:2104.04473,
    section 2.2; Megatron's schedules.py).
    """
    steps = job.accumulation_steps
    if job.pp == 1:
        return layers
    if job.schedule == "gpipe":
        return layers * steps
    if job.vp == 1:
        return layers * min(job.pp - index, steps)
    ahead = 2 * (job.pp - index - 1)
    parts = min(ahead + (job.vp - 1) * (job.vp_group or job.pp) + 1, steps * job.vp)
    if job.ends_count and index in (0, job.pp - 1):
        # The part with the embedding, or with the loss, has a layer less than the others.
        short = min(job.pp + ahead // 2, parts) if index == 0 else 1
        return parts * (layers + 1) / job.vp - short
    return layers * parts / job.vp


def _stage(job: Job, index: int, begin: int, layers: int, constants: MemoryConstants | None) -> StageMemory:
    engine = (constants or memory_constants()).engines[job.engine]
    work, tokens = job.work, job.tokens
    first, last = index == 0, index == job.pp - 1
    plain = 0 if work.experts is None else max(0, min(layers, work.experts.dense_layers - begin))
    held = stage(job, layers, plain, first=first, last=last)
    kept = states(job, engine, held)
    mixed = layer_bytes(job, engine, experts=work.experts is not None)
    activations = mixed.kept * kept_layers(job, index, layers)
    if plain:
        dense = layer_bytes(job, engine, experts=False)
        activations += (dense.kept - mixed.kept) * kept_layers(job, index, layers) * plain / layers
    if last:
        activations += work.mtp * mixed.kept
    working = tokens * ((mixed.whole - mixed.kept) * min(layers, job.recompute_every) + mixed.gradients)
    ends = (first or last) * tokens * work.seq_len if engine.whole_mask else 0.0
    logits = waiting = 0.0
    if last:
        # The last norm's input and output, and the loss.
        ends += 2 * _HALF * tokens * work.hidden / (job.tp if job.sequence_parallel else 1)
        entries = tokens * work.vocab / job.tp
        logits = entries * _logit_bytes(job, engine)
        if job.schedule == "gpipe" and job.pp > 1 and job.loss != "chunked":
            waiting = entries * _KEPT_LOGIT * (job.accumulation_steps - 1)
    components = {
        "weights": int(kept.weights),
        "gradients": int(kept.gradients),
        "sums": int(kept.sums),
        "optimizer": int(kept.optimizer),
        "standing": int(standing(job, engine)),
        "gathered": int(_gathered(job, engine.states, held, kept)),
        "activations": int(activations * tokens + ends),
        # The loss is done before the backward of the layers begins.
        "working": int(working) if working >= logits else 0,
        "logits": int(waiting) + (int(logits) if logits > working else 0),
    }
    if engine.late_gradients and job.accumulation_steps <= 1:
        made = components["activations"] + components["working"] + components["logits"]
        for name in ("gradients", "sums"):
            components[name], made = max(0, components[name] - made), max(0, made - components[name])
    allocated = sum(components.values())
    static = sum(components[name] for name in _LASTING)
    reserved = allocated + int(engine.reserve * (allocated - static) + engine.pool_mib * MIB)
    host, nvme = off_the_gpu(job, engine.states, kept, sum(held))
    return StageMemory(
        stage=index,
        layers=layers,
        components=components,
        static=static,
        allocated=allocated,
        reserved=reserved,
        device=reserved + int(engine.context_mib * MIB),
        host_bytes=host,
        nvme_bytes=nvme,
    )


def _logit_bytes(job: Job, engine: EngineMemory) -> float:
    if job.loss == "chunked":
        return 0.0
    return engine.logit_bytes + (_COMPILED_LOSS if job.loss == "compiled" else 0.0)


def _gathered(job: Job, kind: str, held: Held, kept: States) -> float:
    """Return the weights that sharding gathers, and gradients on their way to where they are summed."""
    whole = sum(held)
    one = sum(layer(job, experts=job.work.experts is not None))
    if kind == "fsdp":
        return _unsharded(job, whole, one)
    if kind == "deepspeed" and job.zero >= 3:
        largest = max(one / 3, job.work.vocab / job.tp * job.work.hidden)
        return _HALF * (min(_LIVE, whole) + 2 * largest + min(_BUCKET, whole))
    if job.zero >= 3:
        return float(_HALF * 3 * one)
    if kind == "deepspeed" and job.zero == 1:
        # In bf16 all 16-bit gradients once more beside their sums, where no host updates; else fp32 ones of
        # the part to update.
        return (
            _HALF * whole
            if kept.sums and not job.offload
            else kept.optimizer / 3 + _HALF * min(_BUCKET, whole)
        )
    return _HALF * float(min(_BUCKET, whole)) if kind == "deepspeed" and job.zero == 2 else 0.0


def _unsharded(job: Job, whole: int, one: int) -> float:
    """Return what FSDP holds whole: of all parameters, of which a layer has `one`."""
    if job.dp * job.cp == 1:
        return 0.0
    if job.pp > 1:
        # Between micro-batches of a pipeline weights stay gathered, and gradients whole in fp32.
        return (_HALF + 4.0) * whole
    # The weights of a layer and of the next, and the gradients of one; all weights where they stay.
    return float(_HALF * (3 * one if job.zero >= 3 else whole + one))
