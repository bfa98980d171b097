"""DSF772: virtual stages are equal parts of a pipeline, filled by whole rounds of micro-batches."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    parallel, layers, micros = facts.recipe.parallel, facts.shape.layers, facts.accumulation_steps
    pp, vp = parallel.pp, parallel.vp
    if not facts.capabilities.takes("parallel.vp", vp):
        return  # that alone has to change (DSF140)
    if vp == 1:
        if parallel.schedule == "interleaved" and facts.capabilities.takes(
            "parallel.schedule", "interleaved"
        ):
            yield Found(
                "without virtual stages the interleaved schedule is plain 1F1B",
                "parallel.schedule",
                "`vp` above 1, or `schedule: 1f1b`",
                Fix("parallel.schedule", "1f1b"),
            )
        return
    if parallel.schedule != "interleaved":
        yield Found(
            f"{vp} virtual stages run in the interleaved schedule, not in {parallel.schedule}",
            "parallel.schedule",
            "`schedule: interleaved`",
            Fix("parallel.schedule", "interleaved"),
        )
    if pp == 1:
        yield Found(
            f"{vp} virtual stages of a pipeline that has one stage",
            "parallel.vp",
            "`vp: 1` and `schedule: 1f1b`, or `pp` above 1",
        )
    elif layers % (pp * vp):
        fits = max(degree for degree in range(1, vp + 1) if layers % (pp * degree) == 0 or degree == 1)
        yield Found(
            f"{layers} layers are no {pp} x {vp} equal parts",
            "parallel.vp",
            "VP x PP that divides the layers",
            Fix("parallel.vp", fits) if fits > 1 else None,
        )
    if parallel.partition != "uniform":
        yield Found(
            f"virtual stages are of one size, and `partition: {parallel.partition}` makes others",
            "parallel.partition",
            "`partition: uniform`",
            Fix("parallel.partition", "uniform"),
        )
    if micros is not None and micros % pp:
        yield Found(
            f"{micros} micro-batches are no whole rounds over {pp} stages",
            "batch.global",
            f"accumulation steps that are a multiple of {pp}",
        )


RULE = Rule(
    code="DSF772",
    name="virtual-stages",
    severity=Severity.ERROR,
    summary="virtual stages are equal parts of a pipeline, filled by whole rounds of micro-batches",
    why=(
        "The interleaved schedule takes PP micro-batches through a part of every stage before the next part "
        "(Narayanan et al. 2021, section 2.2); Megatron's asserts on every rank otherwise."
    ),
    check=_check,
    plannable=True,
)
