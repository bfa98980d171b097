"""Any recipe, shrunk by fixed rules to what one machine runs in minutes.

Kept: architecture, tied or not, grouped-query or not, TP, PP, schedule, partition, ZeRO stage, offload,
precision, recompute, dropout, clipping, validation, trainer. Changed, each change told: DP at most 2; CP the
fewest parts that divide as many; layers two a stage (one where the recipe has no more); head count the
smallest that TP and the head ratio allow; tiny width, vocabulary, sequence and batch; a few steps at a rate
that learns in them; the built-in corpus; fp16 to bf16 where DeepSpeed is to train on a CPU. Only where the
machine cannot hold TP x PP x CP x DP ranks are TP and PP halved, the larger one first, then sequences left
in one part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import gcd
from typing import Any

from dsforge.base.text import counted
from dsforge.catalog.engines.capabilities import capabilities
from dsforge.catalog.families import Experts, families
from dsforge.catalog.hf.reader import model_row
from dsforge.plan.program import engine_of
from dsforge.plan.types import Layout, Model, Plan
from dsforge.recipe.model import Recipe

_HEAD_WIDTH = 16
_VOCAB = 257
"""Bytes and an end mark: their skewed frequencies are learnt in a few steps, and no TP divides it."""
_SEQ_LEN = 64
_EXPERTS = ("count", "active", "ffn_hidden", "normalised", "dense_layers")
"""What a shape written out can say of experts."""
_FEW_EXPERTS = 4
_SMALL_MODEL = 2_000_000
"""Parameters up to which a model is kept as it is."""
_STEPS = 20
_LEARNING_RATE = 2.0e-3
"""Learns within twenty steps at a width of 64; twice as much makes gradients jump."""
_LONGEST_NAME = 190
"""Characters kept of a name, which may have 200, before the suffix."""


@dataclass(frozen=True, slots=True)
class Change:
    """One value that was shrunk: the recipe's, the one used, and why."""

    key: str
    recipe: Any
    used: Any
    why: str

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        return {"key": self.key, "recipe": self.recipe, "used": self.used, "why": self.why}


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A recipe as plain data, ready to be checked again, and what differs from the original."""

    data: dict[str, Any]
    changes: tuple[Change, ...]
    lost: tuple[str, ...]
    """Kinds of parallelism that the recipe has and these ranks do not: TP, PP, CP, DP, EP or VP."""

    @property
    def ranks(self) -> int:
        """Number of ranks, all on one machine."""
        ranks: int = self.data["cluster"]["gpus_per_node"]
        return ranks


def shrink(
    recipe: Recipe,
    plan: Plan,
    max_ranks: int,
    *,
    steps: int = _STEPS,
    gpu: str = "cpu",
    learn_fast: bool = False,
    purpose: str = "smoke",
) -> Shrunk:
    """Return the recipe at a size that `max_ranks` processes of one machine train in minutes.

    `learn_fast` also cuts a small model's vocabulary, so that its loss falls far in a few steps.
    `purpose` ends the name of its runs.
    """
    changes: list[Change] = []

    def use(key: str, before: Any, after: Any, why: str) -> Any:
        if before != after:
            changes.append(Change(key, before, after, why))
        return after

    layout, model, batch = plan.layout, plan.model, plan.batch
    tp, pp, cp, dp = _degrees(layout, max_ranks, splits_sequences=recipe.external is None)
    limit = f"no more than {counted(max_ranks, 'rank')} here"
    use("parallel.tp", layout.tp, tp, limit)
    use("parallel.pp", layout.pp, pp, limit)
    use("parallel.dp", layout.dp, dp, "two replicas show everything that more would" if dp == 2 else limit)
    use("parallel.cp", layout.cp, cp, _why_cp(cp, _parts(layout.cp), limit, recipe))
    vp = use("parallel.vp", layout.vp, _parts(layout.vp) if pp > 1 else 1, _why_vp(pp, limit))
    why = "it needs stages, and the interleaved one virtual ones"
    schedule = use("parallel.schedule", layout.schedule, _schedule(layout.schedule, pp, vp), why)
    partition = layout.partition if layout.partition != "measured" else "parameters"
    use("parallel.partition", layout.partition, partition, "what was measured is the whole model")
    asked = layout.sequence_parallel
    whole = "an external program's ranks of a CPU, or ranks without TP, hold whole sequences"
    splits = tp > 1 and (gpu != "cpu" or recipe.external is None)
    is_split = use("parallel.sequence_parallel", asked, asked and splits, whole)
    tiny = "a tiny shape trains through the same code"
    small = plan.parameters.total <= _SMALL_MODEL and _splits(plan, tp)
    ep = use("parallel.ep", layout.ep, gcd(layout.ep, tp * cp * dp), _why_ep(tp * cp * dp, limit))
    shape = _own_shape(plan) if small else _tiny_shape(plan, tp, pp, vp, ep)
    if learn_fast:
        shape["vocab"] = min(shape["vocab"], _VOCAB)
    seq_len = use(
        "batch.seq_len", batch.seq_len, min(batch.seq_len, _tokens(tp if is_split else 1, cp)), tiny
    )
    shape |= _tiny_window(plan, seq_len)
    for key, own, shrunk in _shape_changes(model, shape):
        use(f"model.{key}", own, shrunk, tiny)
    if model.position == "learned":
        shape["max_positions"] = seq_len
    micro = use("batch.micro", batch.micro, min(batch.micro, 2), "the smallest that still batches")
    accumulation = min(batch.accumulation_steps, max(2, 4 * pp if pp > 1 else 4))
    size = use("batch.global", batch.global_size, micro * accumulation * dp, "a batch that takes a second")
    few = "enough to see the loss fall"
    use("train.steps", plan.train.steps, steps, few)
    rate = use("optimizer.lr", recipe.optimizer.lr, max(recipe.optimizer.lr, _LEARNING_RATE), few)
    warmup = use(
        "optimizer.warmup_steps", recipe.optimizer.warmup_steps, min(recipe.optimizer.warmup_steps, 2), few
    )
    every = plan.train.recompute_every
    block = use("train.recompute_every", every, min(every, shape["layers"] // pp), "a stage has fewer layers")
    validation = _validation(plan, steps, size)
    for key, value in validation.items():
        use(f"train.{key}", getattr(plan.train, key) if plan.train.eval_every else None, value, few)
    use("cluster.nodes", layout.nodes, 1, "one machine")
    use(
        "cluster.gpu",
        plan.gpu,
        gpu,
        "ranks are processes of this machine" if gpu == "cpu" else "as found here",
    )
    for trait, value in _lost_traits(recipe, plan):
        use(f"model.{trait}", value, None, tiny)
    use("checkpoint.init", recipe.checkpoint.init, None, "weights drawn from the seed fit a tiny shape")
    if recipe.data is not None:
        use("data", "the recipe's", "the built-in corpus", "real text found on every machine")
    data: dict[str, Any] = {
        "version": 1,
        "name": f"{plan.name[:_LONGEST_NAME]}-{purpose}",
        "model": shape,
        "cluster": {"nodes": 1, "gpus_per_node": tp * pp * cp * dp, "gpu": gpu},
        "parallel": {
            "vp": vp,
            "ep": ep,
            "schedule": schedule,
            "tp": tp,
            "pp": pp,
            "cp": cp,
            "dp": dp,
            "sequence_parallel": is_split,
            "zero": use(
                "parallel.zero", layout.zero, _zero(recipe, plan, pp), "ZeRO-0 in 16 bits needs stages"
            ),
            "partition": partition if shape["layers"] % pp == 0 else "parameters",
        },
        "offload": {
            **recipe.offload.model_dump(),
            **_places(plan, use, is_alone=gpu == "cpu" and dp == 1),
        },
        "batch": {"global": size, "micro": micro, "seq_len": seq_len},
        "train": {
            **plan.train.model_dump(exclude={"eval_samples"}),
            "steps": steps,
            "precision": use(
                "train.precision",
                plan.train.precision,
                _precision(recipe, plan, gpu),
                "DeepSpeed computes in fp16 on GPUs",
            ),
            "recompute_every": block,
            **validation,
        },
        "optimizer": {**recipe.optimizer.model_dump(), "lr": rate, "warmup_steps": warmup, "min_lr": 0.0},
        "launch": {
            **recipe.launch.model_dump(
                include={"env", "watchdog", "rendezvous_timeout", "collective_timeout", "stop_timeout"}
            ),
            "restarts": 0,
        },
        "trainer": recipe.trainer,
        **({"external": recipe.external.model_dump(mode="json")} if recipe.external else {}),
    }
    return Shrunk(data, tuple(changes), _lost(layout, data["parallel"]))


def _lost(layout: Layout, used: dict[str, Any]) -> tuple[str, ...]:
    kinds = ("tp", "pp", "cp", "dp", "ep", "vp")
    return tuple(kind.upper() for kind in kinds if used[kind] == 1 < getattr(layout, kind))


def _why_vp(pp: int, limit: str) -> str:
    return "few layers make few parts" if pp > 1 else f"a stage alone has none, and {limit}"


def _why_ep(ranks: int, limit: str) -> str:
    return f"the most that divides the {ranks} ranks of a stage" if ranks > 1 else limit


def _why_cp(used: int, fewest: int, limit: str, recipe: Recipe) -> str:
    """Return why a sequence has fewer parts: `fewest` that divide as many, or none."""
    if used == fewest:
        return "a short sequence has few parts"
    return limit if recipe.external is None else "an external program's ranks of a CPU hold whole sequences"


def _places(plan: Plan, use: Callable[[str, Any, Any, str], Any], *, is_alone: bool) -> dict[str, Any]:
    """Return where things are offloaded to; `is_alone`: by one replica on a CPU (DSF800)."""
    places = plan.offload.model_dump()
    if not is_alone or places["parameters"] != "nvme" or plan.external is not None:
        return places
    why = "one replica alone on a CPU does not read parameters from a disk"
    places["parameters"] = use("offload.parameters", "nvme", "cpu", why)
    if places["optimizer"] != "nvme":
        places["path"] = use("offload.path", places["path"], None, why)
    return places


def _precision(recipe: Recipe, plan: Plan, gpu: str) -> str:
    """Return the precision that is computed in there; an external program's own rows say what it takes."""
    asked = plan.train.precision
    stays = recipe.external is not None or capabilities(recipe.trainer).computes(asked, gpu)
    return asked if stays else "bf16"


def _shape_changes(model: Model, shape: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield key, the model's value and the shape's, of each that both have."""
    for key in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab"):
        if key in shape:
            yield key, getattr(model, key), shape[key]
    for key in ("window", "rotary_fraction"):
        yield key, getattr(model, key), _said(shape, key)
    for key, value in shape.get("experts", {}).items():
        yield f"experts.{key}", getattr(model.experts, key), value


def _lost_traits(recipe: Recipe, plan: Plan) -> Iterator[tuple[str, Any]]:
    """Yield the traits of a `config.json` that a shape written out cannot say."""
    if plan.model.window_layers is not None:
        yield "window_layers", plan.model.window_layers
    if plan.model.hf_config is not None and "rope_scaling" in capabilities(recipe.trainer).traits:
        row = model_row(plan.model.hf_config, plan.model.name)
        if row.get("rope_scaling"):
            yield "rope_scaling", row["rope_scaling"]


def _said(shape: dict[str, Any], key: str) -> Any:
    """Return a value of a shape written out, which leaves out what its family has anyway."""
    return shape[key] if key in shape else getattr(families()[shape["arch"]].traits, key)


def _tiny_window(plan: Plan, seq_len: int) -> dict[str, Any]:
    """Return a window that is as large a share of a sequence, where sequences leave it at all."""
    window, whole = plan.model.window, plan.batch.seq_len
    return {} if window is None or window >= whole else {"window": max(1, window * seq_len // whole)}


def _validation(plan: Plan, steps: int, batch: int) -> dict[str, Any]:
    """Return how a run of so many steps validates: twice at least, on whole batches."""
    if not plan.train.eval_every:
        return {"eval_samples": None}
    samples = min(plan.train.eval_samples, 2 * batch)
    return {"eval_every": min(plan.train.eval_every, steps // 2), "eval_samples": samples // batch * batch}


def _schedule(schedule: str, pp: int, vp: int) -> str:
    """Return the schedule of so many stages, which 1F1B serves whatever their number."""
    needs_more = (schedule == "interleaved" and vp == 1) or (schedule == "gpipe" and pp == 1)
    return "1f1b" if needs_more else schedule


def _zero(recipe: Recipe, plan: Plan, pp: int) -> int:
    """Return the ZeRO stage that so many stages train right with (DSF122)."""
    stays = plan.layout.zero > 0 or pp > 1 or plan.train.precision == "fp32"
    return plan.layout.zero if stays or not capabilities(engine_of(recipe)).deepspeed else 1


def _tokens(shards: int, cp: int) -> int:
    """Return a tiny sequence's, which CP cuts into twice as many equal stretches, and shards a part of it."""
    unit = shards * (2 * cp if cp > 1 else 1)
    return max(1, _SEQ_LEN // unit) * unit


def _degrees(layout: Layout, max_ranks: int, *, splits_sequences: bool) -> tuple[int, int, int, int]:
    """Return TP, PP, CP and DP. `splits_sequences`: also on a CPU, where external programs cannot."""
    tp, pp, dp = layout.tp, layout.pp, min(layout.dp, 2)
    cp = _parts(layout.cp) if splits_sequences else 1
    while tp * pp * cp * dp > max_ranks and max(tp, pp) > 2:
        if tp >= pp:
            tp //= 2
        else:
            pp //= 2
    if tp * pp * cp * dp > max_ranks:
        dp = 1
    if tp * pp * cp > max_ranks:
        cp = 1
    while tp * pp > max_ranks and max(tp, pp) > 1:
        if tp >= pp:
            tp = max(1, tp // 2)
        else:
            pp = max(1, pp // 2)
    return tp, pp, cp, dp


def _splits(plan: Plan, tp: int) -> bool:
    """Where the machine holds fewer ranks, TP differs from the one the recipe was checked for."""
    model = plan.model
    width = model.ffn_hidden if model.experts is None else gcd(model.ffn_hidden, model.experts.ffn_hidden)
    return all(size % tp == 0 for size in (model.heads, model.kv_heads, width))


def _own_shape(plan: Plan) -> dict[str, Any]:
    keys = ("arch", "layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "tied")
    shape = {**{key: getattr(plan.model, key) for key in keys}, **_fixed(plan)}
    experts = plan.model.experts
    kept = None if experts is None else {key: getattr(experts, key) for key in _EXPERTS}
    return {**shape, **_mlp(plan.model.ffn_hidden, kept)}


def _mlp(width: int, experts: dict[str, Any] | None) -> dict[str, Any]:
    """Return the keys of a shape's MLPs; where all layers have experts there is no other width."""
    if experts is None:
        return {"ffn_hidden": width}
    return {"experts": experts, **({"ffn_hidden": width} if experts["dense_layers"] else {})}


def _tiny_experts(experts: Experts | None, layers: int, width: int, ep: int) -> dict[str, Any] | None:
    """Return a few experts a rank, of a tiny width, in the layers of a tiny shape."""
    if experts is None:
        return None
    return {
        "count": ep * min(experts.count // ep, max(_FEW_EXPERTS // ep, 2)),
        "active": min(experts.active, 2),
        "ffn_hidden": width,
        "normalised": experts.normalised,
        "dense_layers": tuple(layer for layer in experts.dense_layers if layer < layers - 1),
    }


def _fixed(plan: Plan) -> dict[str, Any]:
    model = plan.model
    kept: dict[str, Any] = {"norm_eps": model.norm_eps}
    if model.position == "rope":
        kept["rope_theta"] = model.rope_theta
    usual = families()[model.arch].traits
    for trait in ("activation", "parallel_residual", "rotary_fraction"):
        if getattr(model, trait) != getattr(usual, trait):
            kept[trait] = getattr(model, trait)
    return kept


def _parts(degree: int) -> int:
    """Return the fewest virtual stages, or parts of sequences, that are still several and divide as many."""
    return next((few for few in range(2, degree + 1) if degree % few == 0), 1)


def _tiny_shape(plan: Plan, tp: int, pp: int, vp: int, ep: int) -> dict[str, Any]:
    model = plan.model
    grouped = model.kv_heads < model.heads
    kv_heads = tp if grouped else max(tp, 4 // tp * tp)
    heads = kv_heads * (2 if grouped else 1)
    hidden = heads * _HEAD_WIDTH
    ffn = -(-(8 * hidden // 3) // (8 * tp)) * 8 * tp if model.gated else 4 * hidden
    layers = min(model.layers // pp, max(2, vp)) * pp
    return {
        "arch": model.arch,
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": _HEAD_WIDTH,
        **_mlp(ffn, _tiny_experts(model.experts, layers, ffn, ep)),
        "vocab": min(model.vocab, _VOCAB),
        "tied": model.tied,
        **_fixed(plan),
        **_tiny_rotary(plan),
    }


def _tiny_rotary(plan: Plan) -> dict[str, Any]:
    """Return the share of a tiny head that RoPE turns, where that of the model's turns no whole pairs."""
    asked = _HEAD_WIDTH * plan.model.rotary_fraction
    turned = max(2, int(asked) - int(asked) % 2)
    return {"rotary_fraction": turned / _HEAD_WIDTH} if turned != asked else {}
