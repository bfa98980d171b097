"""The first weights of a Hugging Face model: drawn from the seed, or read from safetensors, never pickles.

Parameters are filled one after the other. Where ZeRO-3 has dealt a parameter out, rank 0 fills it and its
pieces are sent to their ranks; else every rank fills its own.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.layout.hf_config import config_faults
from dsforge.plan.types import Plan
from dsforge.train import initial
from dsforge.train.hf_names import parts
from dsforge.train.parameters import model_parameters

_MOST_NAMED = 4
_TABLES = ("rotary_emb.inv_freq",)
"""Tables that older versions of transformers saved beside the weights."""


@torch.no_grad()
def draw(parameters: Mapping[str, nn.Parameter], plan: Plan, rank: int) -> None:
    """Fill parameters (Hugging Face names) with the weights that every trainer starts from."""
    named = parts(plan.model)
    for spec in model_parameters(plan.model):
        held = {part: parameters[part.name] for part in named[spec.name]}
        with _open_to_fill(list(held.values()), rank) as fills:
            if fills:
                whole = initial.draw(spec, plan.model, plan.train.seed)
                for part, parameter in held.items():
                    parameter.copy_(part.of(whole))


@torch.no_grad()
def load(model: nn.Module, plan: Plan, folder: Path, rank: int) -> None:
    """Fill a model with the weights of a folder; every rank must call it.

    DsforgeError DSF343 when a file cannot be read, DSF344 when the folder's config is not the plan's, or
    tensors are missing, left over or of another shape; nothing is filled then.
    """
    assert plan.model.hf_config is not None, "the planner writes it for this trainer"
    config = _read(lambda: json.loads((folder / "config.json").read_text("utf-8")), folder / "config.json")
    if faults := config_faults(config, plan.model.hf_config, "config.json"):
        raise _misfit(folder, faults)
    parameters = dict(model.named_parameters())
    with contextlib.ExitStack() as stack:
        where = _tensors(folder, stack)
        names = _matched(model, parameters, where, folder)
        for name, parameter in parameters.items():
            with _open_to_fill([parameter], rank) as fills:
                if fills:
                    parameter.copy_(_tensor(where, names[name], folder))


@contextlib.contextmanager
def _open_to_fill(parameters: list[nn.Parameter], rank: int) -> Iterator[bool]:
    """Yield whether this rank is to fill the parameters, whole while this is open."""
    if not hasattr(parameters[0], "ds_id"):
        yield True
        return
    import deepspeed

    with deepspeed.zero.GatheredParameters(parameters, modifier_rank=0):
        yield rank == 0


def _tensors(folder: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    """Return tensor name to the open file that holds it."""
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise _unreadable(folder, "holds no *.safetensors")
    where: dict[str, Any] = {}
    for path in paths:
        stream = _read(lambda path=path: stack.enter_context(safe_open(path, "pt")), path)
        where |= dict.fromkeys(stream.keys(), stream)
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        listed = _read(lambda: set(json.loads(index.read_text("utf-8"))["weight_map"]), index)
        if absent := sorted(listed - where.keys()):
            raise _misfit(folder, [f"{name} is listed but in no file" for name in absent])
    return where


def _tensor(where: Mapping[str, Any], name: str, folder: Path) -> torch.Tensor:
    return _read(lambda: where[name].get_tensor(name), folder)


def _read(read: Callable[[], Any], path: Path) -> Any:
    try:
        return read()
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(path, str(error).partition("\n")[0]) from error


def _matched(
    model: nn.Module, parameters: Mapping[str, nn.Parameter], where: Mapping[str, Any], folder: Path
) -> dict[str, str]:
    """Return each parameter's name in the files, which may lack the prefix of the bare model."""
    prefix = f"{model.base_model_prefix}."
    names = {name: name if name in where else name.removeprefix(prefix) for name in parameters}
    faults = [f"{name} is missing" for name in parameters if names[name] not in where]
    for name, parameter in parameters.items():
        if names[name] in where:
            found = list(where[names[name]].get_slice(names[name]).get_shape())
            wanted = list(getattr(parameter, "ds_shape", parameter.shape))
            if found != wanted:
                faults.append(f"{name} has shape {found}, not {wanted}")
    # Files of older versions hold masks beside the weights, and a tied head under both of its names.
    idle = (*model._keys_to_ignore_on_load_unexpected, *_TABLES)
    tied = model.all_tied_weights_keys
    left = sorted(set(where) - set(names.values()))
    for name in left:
        source = tied.get(name)
        if source is not None:
            both = [_tensor(where, one, folder) for one in (name, names[source]) if one in where]
            if not all(torch.equal(one, both[0]) for one in both):
                faults.append(f"{name} is not {source}, to which the model ties it")
        elif not name.endswith(idle):
            faults.append(f"{name} is no parameter of the model")
    if faults:
        raise _misfit(folder, faults)
    return names


def _unreadable(path: Path, why: str) -> DsforgeError:
    return DsforgeError(
        "DSF343",
        f"the weights to start from cannot be read: {why}",
        Place(file=str(path)),
        "checkpoint.init names a folder with a Hugging Face model's config.json and *.safetensors",
        ExitCode.BEFORE_FIRST_STEP,
    )


def _misfit(folder: Path, faults: list[str]) -> DsforgeError:
    more = f" and {len(faults) - _MOST_NAMED} more" if len(faults) > _MOST_NAMED else ""
    return DsforgeError(
        "DSF344",
        f"the weights to start from are of another model: {'; '.join(faults[:_MOST_NAMED])}{more}",
        Place(file=str(folder)),
        "name that model's config.json as the model, or the folder of this model's weights",
        ExitCode.BEFORE_FIRST_STEP,
    )
