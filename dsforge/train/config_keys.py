"""What the installed DeepSpeed's configuration takes, found by asking it."""

from __future__ import annotations

import enum
import inspect
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from dsforge.train.reads import Reads

_UNKNOWN = "dsforge_asks"
"""A key that no version has: a section that takes it in silence checks nothing."""
_DEEPEST = 4
_CONTENTS: tuple[dict[str, Any], ...] = ({}, {"enabled": True}, {"type": "Adam"})
"""What a section holds while its reads are noted: some keys are read beside these only."""
_WORDS = {bool: "bool", int: "int", float: "float", str: "text"}


def ask_keys() -> dict[str, Any]:
    """Return every top-level key with its kind and default, and each section's keys."""
    removed = set(ask_removed())
    rows = {name: row for name, row in sorted(_explore(())[0].items()) if name not in removed}
    return {name: with_types((name,), row) for name, row in rows.items()}


def read(config: dict[str, Any], data_parallel: int = 1) -> Any:
    """Return the library's DeepSpeedConfig of a mapping, checked against this data-parallel size."""
    from unittest import mock

    from deepspeed.runtime.config import DeepSpeedConfig

    # Without a process group the library skips what it reads in a real job.
    with (
        mock.patch("deepspeed.comm.get_rank", return_value=0),
        mock.patch("deepspeed.comm.get_world_size", return_value=data_parallel),
    ):
        return DeepSpeedConfig(config)


def _explore(path: tuple[str, ...]) -> tuple[dict[str, Any], bool]:
    """Return (rows of the keys that are read at a path, whether any other key may be read too)."""
    seen: dict[str, Any] = {}
    opened = False
    for content in _CONTENTS:
        section = Reads(content)
        outcome = _try(path, section)
        opened = opened or section.opened
        for key, default in section.seen.items():
            if seen.get(key) is None:
                seen[key] = default
        taken = getattr(outcome, path[-1], None) if path else None
        if not content and not section.seen and isinstance(taken, dict) and not isinstance(taken, Reads):
            # Laid over a mapping of defaults, as `pipeline` is: those are the keys.
            return {key: _row((*path, key), default) for key, default in taken.items()}, False
    rows = {}
    for key, default in seen.items():
        rows[key] = _row((*path, key), default) if len(path) < _DEEPEST else {"kind": "any"}
    return rows, opened


def _row(path: tuple[str, ...], default: Any) -> dict[str, Any]:
    if isinstance(default, bool | int | float | str):
        return {"kind": _WORDS[type(default)], "default": default}
    section = Reads({_UNKNOWN: 0})
    outcome = _try(path, section)
    if isinstance(outcome, ValidationError):
        model = _model_of(outcome)
        if model is not None:
            return {"checked": True, "keys": model_keys(model)}
    rows, opened = _explore(path)
    if rows:
        if isinstance(outcome, Exception) and _UNKNOWN in str(outcome):
            return {"checked": True, "keys": dict(sorted(rows.items()))}
        return {"checked": False, **({"open": True} if opened else {}), "keys": dict(sorted(rows.items()))}
    return {"kind": "any"}


def _try(path: tuple[str, ...], section: Reads) -> Any:
    """Return the library's configuration with a section at a path, or what it raised."""
    content: Any = section
    for key in reversed(path):
        content = Reads({key: content})
    if not path:
        dict.__setitem__(section, "train_batch_size", 1)
    else:
        dict.__setitem__(content, "train_batch_size", 1)
    try:
        return read(content)
    except Exception as fault:  # noqa: BLE001 - whatever a library raises here is its answer
        return fault


def _model_of(fault: ValidationError) -> type[BaseModel] | None:
    """Return the model that refused the unknown key."""
    refused = [row["loc"] for row in fault.errors() if row["type"] == "extra_forbidden"]
    model = next((one for one in _models() if one.__name__ == fault.title), None)
    if not refused or model is None or refused[0][-1] != _UNKNOWN:
        return None
    for part in refused[0][:-1]:
        inner = _inner_model(model.model_fields[str(part)].annotation)
        if inner is None:
            return None
        model = inner
    return model


def _models() -> list[type[BaseModel]]:
    from deepspeed.runtime.config_utils import DeepSpeedConfigModel

    found: list[type[BaseModel]] = []
    waiting = [DeepSpeedConfigModel]
    while waiting:
        model = waiting.pop()
        found.append(model)
        waiting.extend(model.__subclasses__())
    return found


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((inner for one in get_args(annotation) if (inner := _inner_model(one))), None)


def model_keys(model: type[BaseModel]) -> dict[str, Any]:
    """Return the rows of a pydantic model's fields, under every name that it takes them by."""
    rows = {}
    for name, field in model.model_fields.items():
        inner = _inner_model(field.annotation)
        row = {"checked": True, "keys": model_keys(inner)} if inner else _field(field)
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        if extra.get("deprecated"):
            row["replaced_by"] = extra.get("new_param", "")
        for word in {name, field.alias or name}:
            rows[word] = row
    return dict(sorted(rows.items()))


def _field(field: Any) -> dict[str, Any]:
    default = field.get_default(call_default_factory=True)
    row: dict[str, Any] = {"kind": _kind(field.annotation)}
    if row["kind"] != "any" and (choices := _choices(field.annotation)):
        row["choices"] = choices
    value = default.value if isinstance(default, enum.Enum) else default
    if isinstance(value, bool | int | float | str):
        # A subclass of int that prints with commas must not reach the table.
        row["default"] = next(kind(value) for kind in (bool, int, float, str) if isinstance(value, kind))
    return row


def _kind(annotation: Any) -> str:
    for kind, word in _WORDS.items():
        if annotation is kind:
            return word
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return next((word for kind, word in _WORDS.items() if issubclass(annotation, kind)), "any")
    if get_origin(annotation) is Literal:
        return "text"
    kinds = [word for one in get_args(annotation) if (word := _kind(one)) != "any"]
    return kinds[0] if len(kinds) == 1 and get_origin(annotation) not in (list, dict, tuple) else "any"


def _choices(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        values = dict.fromkeys(member.value for member in annotation)
        return [value for value in values if isinstance(value, bool | int | float | str)]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return next((found for one in get_args(annotation) if (found := _choices(one))), [])


_SAMPLES: dict[str, tuple[Any, ...]] = {
    "bool": (True, False),
    "int": (1, 0, 3),
    "float": (1.0, 0.5, 1.5),
    "text": ("fp16", "FAST", "REPLICA", "7", "0.5", "true", "none"),
    "list": ([], ["a"]),
    "object": ({}, {"a": 1}),
    "null": (None,),
}
"""Values of each JSON type: one that is taken shows that the type is; a condition may refuse another."""
_SHARE, _MORE_THAN_ALL = 1, 1.5
_BOUNDS = {1: 0, 0: -1}
"""The least value a key may have, and the value below it that shows it."""


def with_types(path: tuple[str, ...], row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the JSON types that the library takes for its key, where it refuses any."""
    out = dict(row)
    default = row.get("default")
    samples = {**_SAMPLES, "text": (*_SAMPLES["text"], *([default] if isinstance(default, str) else []))}
    takes = [kind for kind, values in samples.items() if any(_takes(path, value) for value in values)]
    if len(takes) < len(samples):
        out["takes"] = takes
    if row.get("kind") in ("int", "float") and "choices" not in row:
        for least, below in _BOUNDS.items():
            if _takes(path, least) and not _takes(path, below):
                out["least"] = least
                break
    if row.get("kind") == "float" and _takes(path, _SHARE) and not _takes(path, _MORE_THAN_ALL):
        out["most"] = _SHARE
    if "keys" in row:
        out["keys"] = {name: with_types((*path, name), inner) for name, inner in row["keys"].items()}
    return out


def _takes(path: tuple[str, ...], value: Any) -> bool:
    content = {path[-1]: value}
    for key in reversed(path[:-1]):
        content = {key: content}
    try:
        read({"train_batch_size": 1, **content})
    except Exception:  # noqa: BLE001 - whatever a library raises here is its answer
        return False
    return True


def ask_removed() -> list[str]:
    """Return the keys that this version had once and refuses by name."""
    from deepspeed.runtime import config

    zero = getattr(config, "_REMOVED_ZERO_CONFIG_KEYS", {})
    top = getattr(config, "_REMOVED_TOP_LEVEL_CONFIG_KEYS", {})
    return sorted([*top, *(f"zero_optimization.{key}" for key in zero)])


def ask_schedulers() -> dict[str, Any]:
    """Return the parameters of each scheduler, by its exact name; without a default they are required."""
    import torch
    from deepspeed.runtime import lr_schedules

    # The engine falls back to torch's own, by their exact names too.
    found = {
        name: cls
        for name, cls in vars(torch.optim.lr_scheduler).items()
        if inspect.isclass(cls) and cls.__module__ == "torch.optim.lr_scheduler" and hasattr(cls, "step")
    }
    found |= {name: getattr(lr_schedules, name) for name in lr_schedules.VALID_LR_SCHEDULES}
    return {name: _parameters(cls) for name, cls in sorted(found.items()) if not name.startswith("_")}


def ask_optimizers() -> dict[str, Any]:
    """Return, by optimizer and by what computes it, the parameters that it takes; {} where unknown."""
    import torch
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
    from deepspeed.ops.lamb import FusedLamb
    from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion
    from deepspeed.runtime.config import ADAM_W_MODE, DEEPSPEED_OPTIMIZERS, TORCH_ADAM_PARAM

    adam = {"gpu": FusedAdam, "cpu": DeepSpeedCPUAdam, "torch": torch.optim.AdamW}
    classes: dict[str, dict[str, Any]] = {
        "adam": adam,
        "adamw": adam,
        "adagrad": {"gpu": torch.optim.Adagrad, "cpu": DeepSpeedCPUAdagrad},
        "lamb": {"gpu": FusedLamb},
        "lion": {"gpu": FusedLion, "cpu": DeepSpeedCPULion},
    }
    popped = {ADAM_W_MODE: True, TORCH_ADAM_PARAM: False, "fp32_optimizer_states": None}
    known: dict[str, Any] = {}
    for name in DEEPSPEED_OPTIMIZERS:
        known[name] = {}
        for way, cls in classes.get(name, {}).items():
            own = popped if name in ("adam", "adamw") else {}
            known[name][way] = dict(sorted({**_parameters(cls), **own}.items()))
    for name, cls in vars(torch.optim).items():
        # The engine falls back to torch's own classes, whose names have capitals.
        if (
            inspect.isclass(cls)
            and issubclass(cls, torch.optim.Optimizer)
            and cls is not torch.optim.Optimizer
        ):
            known[name] = {"torch": _parameters(cls)}
    return dict(sorted(known.items()))


_REQUIRED = "required"


def _parameters(cls: type) -> dict[str, Any]:
    found = {}
    for name, parameter in list(inspect.signature(cls).parameters.items())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        default = _REQUIRED if parameter.default is parameter.empty else parameter.default
        found[name] = _plain(default)
    return dict(sorted(found.items()))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else None
