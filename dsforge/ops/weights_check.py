"""Looks at the weights that a recipe starts from before any rank starts.

Only headers are read, so this takes a second; the ranks look again, at the model itself and at every value.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.layout.hf_config import config_faults
from dsforge.layout.hf_tensors import tensors_of
from dsforge.plan.types import Plan
from dsforge.recipe.load import LoadedRecipe
from dsforge.recipe.model_file import read_model_config
from dsforge.recipe.vocabulary import removal
from dsforge.records.weights import Held, Unfit, Unreadable, find_tensors, matched


def check_weights(plan: Plan, loaded: LoadedRecipe, root: Path) -> None:
    """Raise DsforgeError DSF049 when no whole weights are there, DSF059 when they are of another model.

    DSF032 when the `config.json` beside them cannot be read.
    """
    if plan.checkpoint.init is None:
        return
    folder, place = root / plan.checkpoint.init, loaded.place("checkpoint.init")
    config = plan.model.hf_config
    assert config is not None, "no other trainer honours the key"
    try:
        held = find_tensors(folder)
        _compare(read_model_config(folder / "config.json", place), held, config)
    except Unreadable as error:
        raise DsforgeError(
            "DSF049",
            f"the weights to start from cannot be read: {error}",
            place,
            "put a Hugging Face model's config.json and *.safetensors there, or "
            + removal("checkpoint.init"),
            exit_code=ExitCode.ENVIRONMENT,
        ) from error
    except Unfit as error:
        raise _other_model(plan.checkpoint.init, folder, error, place) from error


def _compare(found: Mapping[str, Any], held: Mapping[str, Held], config: Mapping[str, Any]) -> None:
    if faults := config_faults(found, config, "its config.json"):
        raise Unfit(faults)
    wanted = tensors_of(config)
    matched(held, wanted.shapes, wanted.prefix, wanted.tied)


def _other_model(init: str, folder: Path, error: Unfit, place: Place) -> DsforgeError:
    return DsforgeError(
        "DSF059",
        f"{folder} holds another model than the recipe's: {error}",
        place,
        f"name {init}/config.json as the model, or the folder of the recipe's model",
        exit_code=ExitCode.FINDINGS,
    )
