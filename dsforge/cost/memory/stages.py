"""Memory of a job's pipeline stages at a step's fullest moment."""

from __future__ import annotations

from dsforge.cost.job import Job
from dsforge.cost.memory.activations import layer_bytes
from dsforge.cost.memory.constants import MIB, MemoryConstants, memory_constants
from dsforge.cost.memory.parameters import Held, layer, stage
from dsforge.cost.memory.states import states
from dsforge.cost.memory.types import StageMemory

_HALF = 2
_BUCKET_BYTES = 2 * 500_000_000
"""DeepSpeed's `reduce_bucket_size`, elements of 16 bits; never more than the gradients."""


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
    first = job.first_layers
    last = job.last_layers
    even = pp - (first is not None) - (last is not None)
    rest = layers - (first or 0) - (last or 0)
    if first is None:
        first = -(-rest // even)
        rest, even = rest - first, even - 1
    if last is None:
        last = rest // even
        rest, even = rest - last, even - 1
    return first, -(-rest // even) if even else last, last


def in_flight(job: Job, index: int) -> float:
    """Return how many micro-batches a stage keeps at once, in units of its layers.

    GPipe keeps all; 1F1B as many as stages follow, and one; interleaved 2 (p - i - 1) + (v - 1) p + 1 of its
    v parts (Narayanan et al. 2021, arXiv:2104.04473, section 2.2; Megatron's schedules.py).
    """
    steps = job.accumulation_steps
    if job.pp == 1:
        return 1.0
    if job.schedule == "gpipe":
        return steps
    if job.vp > 1:
        parts = 2 * (job.pp - index - 1) + (job.vp - 1) * job.pp + 1
        return min(parts, steps * job.vp) / job.vp
    return min(job.pp - index, steps)


def _stage(job: Job, index: int, begin: int, layers: int, constants: MemoryConstants | None) -> StageMemory:
    engine = (constants or memory_constants()).engines[job.engine]
    work, tokens = job.work, job.tokens
    first, last = index == 0, index == job.pp - 1
    plain = 0 if work.experts is None else max(0, min(layers, work.experts.dense_layers - begin))
    held = stage(job, layers, plain, first=first, last=last)
    kept = states(job, engine, held)
    mixed = layer_bytes(job, engine, experts=work.experts is not None)
    activations = (layers - plain) * mixed.kept
    if plain:
        activations += plain * layer_bytes(job, engine, experts=False).kept
    if last:
        activations += work.mtp * mixed.kept
    activations *= tokens * in_flight(job, index)
    again = 0.0
    if job.recompute not in ("none", "selective"):
        again = tokens * max(0.0, mixed.whole - mixed.kept) * min(layers, job.recompute_every)
    logits = 0.0
    if last and not job.fused_loss:
        logits = engine.logit_bytes * tokens * work.vocab / job.tp
    pipeline = _HALF * tokens * work.hidden * job.vp if job.pp > 1 else 0.0
    buffers = _buffers(job, engine.states, held)
    workspace = engine.workspace_mib * MIB
    components = {
        "weights": int(kept.weights),
        "gradients": int(kept.gradients),
        "sums": int(kept.sums),
        "optimizer": int(kept.optimizer),
        "buffers": int(buffers + pipeline + workspace),
        "activations": int(activations),
        "recomputed": int(again) if again >= logits else 0,
        "logits": int(logits) if logits > again else 0,
    }
    allocated = sum(components.values())
    static = allocated - components["activations"] - components["recomputed"] - components["logits"]
    static -= int(buffers)
    reserved = allocated + int(engine.reserve * (allocated - static))
    offloaded = int(kept.offloaded * job.machine.gpus_per_node)
    return StageMemory(
        stage=index,
        layers=layers,
        components=components,
        static=static,
        allocated=allocated,
        reserved=reserved,
        device=reserved + int(engine.context_mib * MIB),
        host_bytes=0 if job.on_nvme else offloaded,
        nvme_bytes=offloaded if job.on_nvme else 0,
    )


def _buffers(job: Job, kind: str, held: Held) -> float:
    """Return what sharding gathers and reduces at once, in 16 bits."""
    whole = sum(held)
    one = sum(layer(job, experts=job.work.experts is not None))
    if kind == "fsdp":
        # The weights of a layer and of the next, and the gradients of one; all weights where they stay.
        return _HALF * (3 * one if job.zero >= 3 else whole + one) if job.dp > 1 else 0.0
    if job.zero >= 3:
        return float(_HALF * 3 * one)
    if kind == "deepspeed" and job.zero >= 1:
        return float(min(_BUCKET_BYTES, _HALF * whole))
    return 0.0
