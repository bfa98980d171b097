"""The first weights of a Hugging Face model: drawn from the seed, or read from safetensors, never pickles.

Parameters are filled one after the other. Where ZeRO-3 has dealt a parameter out, rank 0 fills it and its
pieces are sent to their ranks; else every rank fills its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.base.json_file import read_object
from dsforge.layout.hf_config import config_faults
from dsforge.layout.hf_experts import Pieces, pieces_in_files
from dsforge.layout.shape import resolve_shape
from dsforge.plan.types import Plan
from dsforge.recipe.model_file import MOST_CONFIG_BYTES
from dsforge.records.weights import Unfit, Unreadable, find_tensors, matched
from dsforge.train import initial, world
from dsforge.train.held import fill
from dsforge.train.hf_names import parts, to_hugging_face, together


@torch.no_grad()
def draw(parameters: Mapping[str, nn.Parameter], plan: Plan, rank: int) -> None:
    """Fill parameters (Hugging Face names) with the weights that every trainer starts from."""
    named = parts(plan.model)
    for specs in together(plan.model):
        held = {part.name: parameters[part.name] for part in named[specs[0].name]}
        with _open_to_fill(list(held.values()), rank) as fills:
            if fills:
                drawn = (initial.draw(spec, plan.model, plan.train.seed) for spec in specs)
                beside = (named[spec.name] for spec in specs)
                for name, whole in to_hugging_face(zip(drawn, beside, strict=True)).items():
                    fill(held[name], whole)


@torch.no_grad()
def load(model: nn.Module, plan: Plan, folder: Path, rank: int) -> None:
    """Fill a model with the weights of a folder; every rank must call it.

    DsforgeError DSF343 when a file cannot be read, DSF344 when the folder's config is not the plan's, or
    tensors are missing, left over, or of another shape or type; nothing is filled then. DSF344, too, for
    a value that is not finite, which is seen while filling.
    """
    config = plan.model.hf_config
    assert config is not None, "the planner writes it for this trainer"
    try:
        _check_config(config, folder)
        _fill(model, folder, rank, pieces_in_files(resolve_shape("the plan", 1, config)))
    except Unreadable as error:
        raise _unreadable(error.path, error.why) from error
    except Unfit as error:
        raise _misfit(folder, error) from error


def _check_config(wanted: Mapping[str, Any], folder: Path) -> None:
    path = folder / "config.json"
    config = _read(lambda: read_object(path, MOST_CONFIG_BYTES), path)
    if faults := config_faults(config, wanted, "config.json"):
        raise Unfit(faults)


def _fill(model: nn.Module, folder: Path, rank: int, pieces: Mapping[str, Pieces]) -> None:
    parameters, held = dict(model.named_parameters()), find_tensors(folder)
    shapes = {name: tuple(getattr(one, "ds_shape", one.shape)) for name, one in parameters.items()}
    wanted = dict(_wanted(shapes, pieces))
    tied = model.all_tied_weights_keys
    names = matched(held, wanted, model.base_model_prefix, tied)
    faults: list[str] = []
    with contextlib.ExitStack() as stack:
        streams = {
            path: _read(lambda path=path: stack.enter_context(safe_open(path, "pt")), path)
            for path in sorted({one.path for one in held.values()})
        }

        def tensor(name: str) -> torch.Tensor:
            path = held[name].path
            read: torch.Tensor = _read(lambda: streams[path].get_tensor(name), path)
            return read

        def whole(name: str) -> torch.Tensor:
            if name not in pieces:
                return tensor(names[name])
            rows = [torch.cat([tensor(names[piece]) for piece in row]) for row in pieces[name]]
            return torch.stack(rows).reshape(shapes[name])

        for again, source in tied.items():
            if again in held and not torch.equal(tensor(again), tensor(names[source])):
                raise Unfit([f"{again} is not {source}, to which the model ties it"])
        for name, parameter in parameters.items():
            with _open_to_fill([parameter], rank) as fills:
                if fills:
                    read = whole(name).to(parameter.dtype)
                    fill(parameter, read)
                    if not read.isfinite().all():
                        faults.append(f"{name} holds values that are not finite")
    if any(hasattr(parameter, "ds_id") for parameter in parameters.values()):
        faults = world.from_rank_0(rank, lambda: faults)
    if faults:
        raise Unfit(faults)


def _wanted(
    shapes: Mapping[str, tuple[int, ...]], pieces: Mapping[str, Pieces]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and shape of what files must hold for the model's tensors."""
    for name, shape in shapes.items():
        for row in pieces.get(name, ()):
            yield from ((piece, (shape[-2] // len(row), shape[-1])) for piece in row)
        if name not in pieces:
            yield name, shape


@contextlib.contextmanager
def _open_to_fill(parameters: list[nn.Parameter], rank: int) -> Iterator[bool]:
    """Yield whether this rank is to fill the parameters, whole while this is open."""
    if not hasattr(parameters[0], "ds_id"):
        yield True
        return
    import deepspeed

    with deepspeed.zero.GatheredParameters(parameters, modifier_rank=0):
        yield rank == 0


def _read(read: Callable[[], Any], path: Path) -> Any:
    try:
        return read()
    except (OSError, SafetensorError, ValueError) as error:
        raise Unreadable(path, str(error).partition("\n")[0]) from error


def _unreadable(path: Path, why: str) -> DsforgeError:
    return DsforgeError(
        "DSF343",
        f"the weights to start from cannot be read: {why}",
        Place(file=str(path)),
        "checkpoint.init names a folder with a Hugging Face model's config.json and *.safetensors",
        ExitCode.BEFORE_FIRST_STEP,
    )


def _misfit(folder: Path, error: Unfit) -> DsforgeError:
    return DsforgeError(
        "DSF344",
        f"the weights to start from are of another model: {error}",
        Place(file=str(folder)),
        "name that model's config.json as the model, or the folder of this model's weights",
        ExitCode.BEFORE_FIRST_STEP,
    )
