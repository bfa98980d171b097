"""`tune --layers`: what an embedding, a layer and a head take on this machine, and the stages that follow."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dsforge.base.canonical import dumps, loads
from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.catalog.engines.capabilities import capabilities
from dsforge.layout.shape import Shape
from dsforge.layout.stages import assign
from dsforge.layout.timed import conditions
from dsforge.ops.fewer_hosts import changed
from dsforge.plan.measurements import layer_times
from dsforge.plan.resolve import look_up, make_plan
from dsforge.plan.types import Plan
from dsforge.recipe.load import LoadedRecipe
from dsforge.records.layer_times import LayerTimes

_TIMEOUT_SECONDS = 900
NO_WEIGHTS = "parallel.partition_weights=null"
"""The change with which a recipe is read whose file is still to be measured."""
_ONE_RANK = {
    **dict.fromkeys(("tp", "pp", "dp", "vp", "cp", "ep", "world_size", "nodes", "gpus_per_node"), 1),
    "sequence_parallel": False,
    "engine": "module",
}


@dataclass(frozen=True, slots=True)
class Stages:
    """Layers of each stage under one partition, and what the slowest stage takes by the measured times."""

    partition: str
    layers: tuple[int, ...]
    slowest_seconds: float


def measured_layers(
    loaded: LoadedRecipe, environ: Mapping[str, str], begin: Callable[[], None]
) -> tuple[LayerTimes, tuple[Stages, ...]]:
    """Return the times of a recipe's pieces, and its stages by parameters and by these times, if several.

    `begin` is called before what takes long, once nothing refuses the recipe.
    DsforgeError DSF797 where its trainer has no stages, or the measuring process fails.
    """
    if loaded.recipe.parallel.partition == "measured":
        loaded = changed(loaded, ["parallel.partition=parameters"])
    plan = make_plan(loaded)
    _refuse(loaded, plan)
    begin()
    shape, _, _ = look_up(loaded)
    assert shape is not None, "planned before"
    times = _measure(plan, shape, environ)
    several = plan.layout.pp > 1 and plan.layout.vp == 1
    known = replace(shape, times=times)
    return times, tuple(_stages(known, plan, times, how) for how in ("parameters", "measured") if several)


def _refuse(loaded: LoadedRecipe, plan: Plan) -> None:
    why, key = None, "model"
    if plan.trainer == "external" or not capabilities(plan.trainer).takes("parallel.pp", 2):
        why, key = f"trainer {plan.trainer} deals no layers to stages", "trainer"
    elif plan.model.experts is not None:
        why = "experts take as long as the router sends them work, which one layer does not tell"
    if why is not None:
        hint = "`partition` is for `forge` and `megatron-core`, of models without experts"
        raise DsforgeError("DSF797", why, loaded.place(key), hint, exit_code=ExitCode.FINDINGS)


def _stages(shape: Shape, plan: Plan, times: LayerTimes, partition: str) -> Stages:
    stages = assign(shape, plan.layout.pp, partition, plan.model.padded_vocab)
    slowest = max(
        stage.count * times.layer.seconds
        + stage.has_embedding * times.embedding.seconds
        + stage.has_head * times.head.seconds
        for stage in stages
    )
    return Stages(partition, tuple(stage.count for stage in stages), slowest)


def _measure(plan: Plan, shape: Shape, environ: Mapping[str, str]) -> LayerTimes:
    """Measure in a process of its own, with the variables that a rank of the plan has."""
    alone = plan.model_copy(update={"layout": plan.layout.model_copy(update=_ONE_RANK)})
    train = plan.train
    of = conditions(
        shape,
        seq_len=plan.batch.seq_len,
        precision=train.precision,
        recompute=train.recompute,
        gpu=plan.gpu,
    )
    with tempfile.TemporaryDirectory(prefix="dsforge-") as folder:
        files = {"plan.json": alone.to_json_value(), "conditions.json": of}
        for name, value in files.items():
            Path(folder, name).write_text(dumps(value), "utf-8")
        words = [
            sys.executable,
            "-m",
            "dsforge.train.layer_times",
            *(str(Path(folder, name)) for name in files),
        ]
        try:
            done = subprocess.run(
                words,
                env={**environ, **plan.launch.env, "RANK": "0"},
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _failed(f"no end after {_TIMEOUT_SECONDS} s") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["no message"]
        raise _failed(next((one for one in said if one.startswith("error[")), said[-1]))
    return layer_times(loads(done.stdout))


def _failed(why: str) -> DsforgeError:
    hint = "see `dsforge doctor`; on a machine without the recipe's GPU, `cluster.gpu=cpu` measures the CPU"
    return DsforgeError(
        "DSF797", f"the layers could not be measured: {why}", None, hint, ExitCode.ENVIRONMENT
    )
