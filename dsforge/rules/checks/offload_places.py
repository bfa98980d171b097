"""DSF776: what is offloaded has its ZeRO stage and its place."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.layout.offload import least_stage
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    offload = facts.recipe.offload
    places = {offload.optimizer, offload.parameters}
    known = (f"offload.{name}" for name in ("optimizer", "parameters", "path"))
    if not all(facts.capabilities.takes(key, getattr(offload, key.split(".")[1])) for key in known):
        return
    able = facts.recipe.parallel.pp == 1 and _under_tp(facts) == 3
    if facts.recipe.trainer != "external":
        yield from _below_its_stage(facts)
    if offload.parameters != "none" and facts.zero not in (None, 3):
        # Where both go together, parameters alone cannot stay behind (DSF780).
        is_tied = facts.capabilities.offloads_together and offload.optimizer != "none"
        yield Found(
            f"parameters are offloaded in the shards of ZeRO-3, this is ZeRO-{facts.zero}",
            "offload.parameters",
            "`zero: 3`" if is_tied else f"{'`zero: 3`, or ' if able else ''}leave parameters on the GPU",
            Fix("parallel.zero", 3) if is_tied else Fix("offload.parameters", "none"),
        )
    elif offload.parameters != "none" and offload.optimizer == "none":
        yield Found(
            "parameters leave the GPU with the optimizer's states, and not without them",
            "offload.optimizer",
            "offload the optimizer, too",
            Fix("offload.optimizer", "cpu"),
        )
    if "nvme" in places and offload.path is None:
        yield Found(
            "nothing says where the disk is", "offload.optimizer", "set offload.path to a folder on it"
        )
    if "nvme" not in places and offload.path is not None:
        yield Found(
            "nothing is offloaded to the disk that offload.path names",
            "offload.path",
            "offload to nvme, or leave the path out",
            Fix("offload.path", None),
        )


def _under_tp(facts: Facts) -> int:
    """Return the highest ZeRO stage that the trainer takes with the recipe's TP."""
    return facts.capabilities.zero_under_tp if facts.recipe.parallel.tp > 1 else 3


def _below_its_stage(facts: Facts) -> Iterator[Found]:
    place = facts.recipe.offload.optimizer
    least = least_stage(place, "none")
    if not facts.capabilities.deepspeed or facts.zero is None or facts.zero >= least:
        return
    said = f"the optimizer goes to {place} under ZeRO-{least} at least, this is ZeRO-{facts.zero}"
    if (facts.recipe.parallel.pp > 1 and least > 1) or least > _under_tp(facts):
        how = "with a pipeline" if facts.recipe.parallel.pp > 1 else "under AutoTP"
        hint = f"`optimizer: cpu` without a path: {how} DeepSpeed offloads to the CPU alone"
        yield Found(said, "offload.optimizer", hint)
    else:
        hint = f"`zero: {least}`, or leave the optimizer on the GPU"
        yield Found(said, "parallel.zero", hint, Fix("parallel.zero", least))


RULE = Rule(
    code="DSF776",
    name="offload-places",
    severity=Severity.ERROR,
    summary="what is offloaded has its ZeRO stage and its place",
    why="DeepSpeed offloads parameters, and to a disk, under ZeRO-3 alone: below, `nvme` means the CPU, "
    "and under ZeRO-0 it offloads nothing without a word. A disk that nobody names is not written to.",
    check=_check,
    plannable=True,
)
