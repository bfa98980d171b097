import json
from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.render.deepspeed_config import deepspeed_config
from dsforge.train.context import read_context
from dsforge.train.main import trainer_module


@pytest.fixture
def variables(tmp_path, make_plan):
    plan = make_plan(data__train=[], data__builtin_vocab=61)
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json_value()))
    (tmp_path / "ds_config.json").write_text(json.dumps(deepspeed_config(plan)))
    return {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "DSFORGE_PLAN": str(tmp_path / "plan.json"),
        "DSFORGE_DS_CONFIG": str(tmp_path / "ds_config.json"),
        "DSFORGE_ATTEMPT_DIR": str(tmp_path / "attempt-1"),
        "DSFORGE_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
        "DSFORGE_ROOT": str(tmp_path),
        "DSFORGE_CORPUS": "/corpus/built-in",
    }


def test_what_a_rank_is_told(variables, make_plan):
    context = read_context(variables)
    assert (context.rank, context.local_rank, context.world_size) == (3, 1, 4)
    assert context.plan == make_plan(data__train=[], data__builtin_vocab=61)
    assert context.ds_config == deepspeed_config(make_plan())
    assert (context.run_id, context.attempt_number) == ("", 1)
    assert context.sources.train == ((1.0, Path("/corpus/built-in")),)
    assert context.sources.valid == ((1.0, Path("/corpus/built-in-valid")),)
    assert context.attempt.metrics.name == "metrics.jsonl"
    assert context.dump_dir is None


def test_the_attempt_is_numbered_by_its_folder(variables):
    told = {**variables, "DSFORGE_RUN_ID": "run-7", "DSFORGE_ATTEMPT_DIR": "/runs/run-7/attempt-12"}
    context = read_context(told)
    assert (context.run_id, context.attempt_number) == ("run-7", 12)
    assert read_context({**told, "DSFORGE_ATTEMPT_DIR": "/elsewhere"}).attempt_number == 1


def test_a_configuration_of_another_plan_is_refused(variables, tmp_path, make_plan):
    other = deepspeed_config(make_plan(batch__accumulation_steps=4))
    (tmp_path / "ds_config.json").write_text(json.dumps(other))
    with pytest.raises(DsforgeError, match="gradient_accumulation_steps is 4, the plan says 2") as caught:
        read_context(variables)
    assert (caught.value.code, caught.value.place.file) == ("DSF305", str(tmp_path / "ds_config.json"))
    assert "render again" in caught.value.hint


def test_data_of_the_recipe_lie_beside_it(variables, tmp_path, make_plan):
    plan = make_plan(data__train=[{"weight": 3, "prefix": "data/text"}])
    del variables["DSFORGE_CORPUS"]  # which only the built-in corpus needs
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json_value()))
    assert read_context(variables).sources.train == ((3.0, tmp_path / "data" / "text"),)


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "DSFORGE_PLAN", "DSFORGE_CORPUS"])
def test_a_missing_variable_is_named(variables, name):
    del variables[name]
    with pytest.raises(DsforgeError, match=f"{name} is not set") as caught:
        read_context(variables)
    assert (caught.value.code, caught.value.exit_code) == ("DSF301", 3)


def test_a_plan_of_another_version_is_refused_by_key(variables, tmp_path, make_plan):
    value = make_plan().to_json_value()
    value["layout"]["later"] = 2
    (tmp_path / "plan.json").write_text(json.dumps(value))
    with pytest.raises(DsforgeError, match=r"layout\.later") as caught:
        read_context(variables)
    assert caught.value.code == "DSF303"


def test_an_unknown_trainer_is_refused_with_those_that_exist():
    with pytest.raises(DsforgeError, match="`mine` is not known") as caught:
        trainer_module("mine")
    assert "forge" in caught.value.hint
