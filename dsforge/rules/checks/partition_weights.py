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
    taken = ((key, getattr(parallel, key.split(".")[1])) for key in ("parallel.partition", _KEY))
    if not all(facts.capabilities.takes(key, value) for key, value in taken):
        return  # the trainer has no use for either (DSF140)
    if facts.shape.experts is not None:
        yield from _of_experts(facts)
    elif parallel.partition != "measured":
        if parallel.partition_weights is not None:
            yield Found(
                f"measured times are named, and `partition: {parallel.partition}` does not use them",
                _KEY,
                "`partition: measured`, or no file",
                Fix("parallel.partition", "measured"),
            )
    elif times is None:
        message = "stages are to be dealt out by measured times, and no file of them is named"
        yield Found(message, "parallel.partition", _MEASURE)
    else:
        yield from _differing(facts, times)


def _of_experts(facts: Facts) -> Iterator[Found]:
    """Yield both keys at once: neither says anything without the other."""
    if facts.recipe.parallel.partition == "measured":
        yield Found(
            "experts take as long as the router sends them work, which no measurement of a layer tells",
            "parallel.partition",
            "`partition: parameters`",
            Fix("parallel.partition", "parameters"),
        )
    if facts.recipe.parallel.partition_weights is not None:
        message = "measured times are named, and stages of a model with experts are not dealt out by any"
        yield Found(message, _KEY, "no file", Fix(_KEY, None))


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
