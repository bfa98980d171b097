"""DSF776: what is offloaded has its ZeRO stage and its place."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    offload = facts.recipe.offload
    places = {offload.optimizer, offload.parameters}
    known = (f"offload.{name}" for name in ("optimizer", "parameters", "path"))
    if not all(facts.capabilities.takes(key, getattr(offload, key.split(".")[1])) for key in known):
        return
    if offload.parameters != "none" and facts.zero not in (None, 3):
        yield Found(
            f"parameters are offloaded in the shards of ZeRO-3, this is ZeRO-{facts.zero}",
            "offload.parameters",
            "`zero: 3`, or leave parameters on the GPU",
            Fix("offload.parameters", "none"),
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


RULE = Rule(
    code="DSF776",
    name="offload-places",
    severity=Severity.ERROR,
    summary="what is offloaded has its ZeRO stage and its place",
    why="DeepSpeed offloads parameters under ZeRO-3 alone, and a disk that nobody names is not written to.",
    check=_check,
    plannable=True,
)
