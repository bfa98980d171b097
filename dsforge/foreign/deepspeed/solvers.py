"""Optimizer and scheduler of a DeepSpeed configuration: names and parameters, which no parser checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsforge.catalog.engines.deepspeed import DeepSpeedKeys
from dsforge.foreign.deepspeed.sense import device_of
from dsforge.foreign.findings import Examined, is_open, nearest, shown

_REQUIRED = "required"


def optimizer_parameters(seen: Examined, keys: DeepSpeedKeys) -> Mapping[str, Any] | None:
    """Return the parameters of the class that would compute the optimizer; None when it is not known here."""
    name = seen.get("optimizer.type")
    if not isinstance(name, str):
        return None
    ways = keys.optimizers.get(name.lower()) or keys.optimizers.get(name)
    if not ways:
        return None
    way = "cpu" if device_of(seen, "offload_optimizer") in ("cpu", "nvme") else "gpu"
    if seen.get("optimizer.params.torch_adam") is True:
        way = "torch"
    return ways.get(way) or next(iter(ways.values()))


def check_optimizer(seen: Examined, keys: DeepSpeedKeys) -> None:
    """DSF650, DSF651: an optimizer or a parameter that fails when the engine is built."""
    name = seen.get("optimizer.type")
    if not seen.has("optimizer") or is_open(name) or not isinstance(seen.get("optimizer"), dict):
        return
    if not isinstance(name, str) or (name.lower() not in keys.optimizers and name not in keys.optimizers):
        near = nearest(str(name), keys.optimizers)
        seen.error(
            "DSF650",
            f"no optimizer {shown(name)} in DeepSpeed {keys.version} or torch: the engine fails to start",
            "optimizer.type" if seen.has("optimizer.type") else "optimizer",
            f"did you mean `{near}`?" if near else "AdamW is the usual one",
        )
        return
    parameters = optimizer_parameters(seen, keys)
    if parameters is not None:
        _check_parameters(seen, "optimizer.params", f"optimizer {name}", parameters, "DSF651")


def check_scheduler(seen: Examined, keys: DeepSpeedKeys) -> None:
    """DSF652, DSF653: a scheduler or a parameter that fails when the engine is built."""
    name = seen.get("scheduler.type")
    if not seen.has("scheduler") or is_open(name) or not isinstance(seen.get("scheduler"), dict):
        return
    if not isinstance(name, str) or name not in keys.schedulers:
        near = nearest(str(name), keys.schedulers)
        seen.error(
            "DSF652",
            f"no scheduler {shown(name)} in DeepSpeed {keys.version} or torch: the engine fails to start",
            "scheduler.type" if seen.has("scheduler.type") else "scheduler",
            f"did you mean `{near}`?" if near else "WarmupDecayLR is the usual one",
        )
        return
    parameters = keys.schedulers[name]
    _check_parameters(seen, "scheduler.params", f"scheduler {name}", parameters, "DSF653")
    given = seen.get("scheduler.params", {})
    for missing in sorted(key for key, default in parameters.items() if default == _REQUIRED):
        if isinstance(given, dict) and missing not in given:
            seen.error(
                "DSF653",
                f"scheduler {name} has no `{missing}`: the engine fails to start",
                "scheduler.type",
                f"add `scheduler.params.{missing}`",
            )


def _check_parameters(seen: Examined, at: str, owner: str, parameters: Mapping[str, Any], code: str) -> None:
    given = seen.get(at, {})
    for key, value in given.items() if isinstance(given, dict) else ():
        dotted = f"{at}.{key}"
        if key == "max_grad_norm":
            seen.error(
                code,
                f"`{dotted}` is no parameter of an optimizer: the engine fails to start",
                dotted,
                f"move it to the top level: gradient_clipping {shown(value)}",
            )
        elif key not in parameters:
            near = nearest(key, parameters)
            hint = f"did you mean `{near}`?" if near else f"remove `{key}`"
            message = f"{owner} takes no `{key}`: the engine fails to start"
            seen.error(code, message, dotted, hint)
        elif isinstance(value, str) and value != "auto" and _computes(parameters[key]):
            message = (
                f"`{dotted}` is the text {shown(value)}, not a number: nothing checks it until it is used"
            )
            seen.error("DSF614", message, dotted, "write the number without quotes")


def _computes(default: Any) -> bool:
    return isinstance(default, int | float | list)
