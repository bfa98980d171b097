"""DSF795: stages by measured times have times, of this model on this GPU; no others are named."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.layout.timed import conditions
from dsforge.recipe.yaml_text import flow_text
from dsforge.records.layer_times import LayerTimes
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_MEASURE = "`dsforge tune --layers RECIPE -o FILE` measures them; name FILE in parallel.partition_weights"
_KEY = "parallel.partition_weights"


def _check(facts: Facts) -> Iterator[Found]:
    parallel, times = facts.recipe.parallel, facts.shape.times
    if parallel.partition != "measured":
        if parallel.partition_weights is not None:
            yield Found(
                f"measured times are named, and `partition: {parallel.partition}` does not use them",
                _KEY,
                "`partition: measured`, or no file",
                Fix("parallel.partition", "measured"),
            )
        return
    if times is None:
        message = "stages are to be dealt out by measured times, and no file of them is named"
        yield Found(message, "parallel.partition", _MEASURE)
        return
    if facts.shape.experts is not None:
        yield Found(
            "experts take as long as the router sends them work, which no measurement of a layer tells",
            "parallel.partition",
            "`partition: parameters`",
            Fix("parallel.partition", "parameters"),
        )
        return
    yield from _differing(facts, times)


def _differing(facts: Facts, times: LayerTimes) -> Iterator[Found]:
    shape, recipe = facts.shape, facts.recipe
    own = conditions(
        shape,
        seq_len=recipe.batch.seq_len,
        precision=recipe.train.precision,
        recompute=recipe.train.recompute,
        gpu=facts.hardware.name,
    )
    apart = times.differing(own)
    if apart:
        told = ", ".join(
            f"{name} {flow_text(times.of.get(name))}, not {flow_text(own.get(name))}" for name in apart
        )
        # A search may choose another recomputation; all else the recipe says itself.
        key = "train.recompute" if apart == ["recompute"] else _KEY
        yield Found(f"the times were measured with {told}", key, _MEASURE)


RULE = Rule(
    code="DSF795",
    name="partition-weights",
    severity=Severity.ERROR,
    summary="stages by measured times have times, of this model on this GPU; no others are named",
    why="Times of another model, precision or machine balance the stages wrongly, and times that no "
    "partition uses would be ignored.",
    check=_check,
)
