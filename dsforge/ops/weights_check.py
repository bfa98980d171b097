"""Looks at the weights that a recipe starts from before any rank starts."""

from __future__ import annotations

from pathlib import Path

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.layout.hf_config import config_faults
from dsforge.plan.types import Plan
from dsforge.recipe.load import LoadedRecipe
from dsforge.recipe.model_file import read_model_config
from dsforge.recipe.vocabulary import removal


def check_weights(plan: Plan, loaded: LoadedRecipe, root: Path) -> None:
    """Raise DsforgeError DSF049 when no weights are there, DSF059 when they are of another model.

    DSF032 to DSF034 when the `config.json` beside them cannot be read.
    """
    if plan.checkpoint.init is None:
        return
    folder, place = root / plan.checkpoint.init, loaded.place("checkpoint.init")
    if not any(folder.glob("*.safetensors")):
        raise DsforgeError(
            "DSF049",
            f"no *.safetensors in {folder}",
            place,
            "put a Hugging Face model's config.json and *.safetensors there, or "
            + removal("checkpoint.init"),
            exit_code=ExitCode.ENVIRONMENT,
        )
    assert plan.model.hf_config is not None, "no other trainer honours the key"
    config = read_model_config(folder / "config.json", place)
    if faults := config_faults(config, plan.model.hf_config, str(folder / "config.json")):
        raise DsforgeError(
            "DSF059",
            f"{folder} holds another model than the recipe's: {', '.join(faults)}",
            place,
            f"name {plan.checkpoint.init}/config.json as the model, or the folder of the recipe's model",
            exit_code=ExitCode.FINDINGS,
        )
