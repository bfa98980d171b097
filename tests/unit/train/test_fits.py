from dataclasses import replace

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.train.fits import check_fits, layout_difference, model_difference, model_facts, parameter_entries
from tests.support.checkpoints import facts, manifest


def test_an_equal_plan_fits(tmp_path, make_plan):
    plan = make_plan()
    check_fits(manifest(plan, 3), plan, facts(plan), tmp_path)


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        ({"layout__tp": 2}, "DSF331", "parallel.tp was 1, the plan says 2"),
        ({"layout__ep": 2}, "DSF331", "ep was 1, the plan says 2"),
        ({"layout__cp": 2}, "DSF331", "parallel.cp was 1, the plan says 2"),
        ({"layout__zero": 3}, "DSF331", "zero was 0, the plan says 3"),
        ({"train__precision": "bf16"}, "DSF331", "train.precision was fp32, the recipe says bf16"),
        ({"layout__tp": 2, "layout__dp": 1}, "DSF331", "parallel.tp was 1, the plan says 2"),
        ({"optimizer__type": "lion"}, "DSF331", "optimizer.type was adamw, the recipe says lion"),
        ({"offload__path": "/disk"}, "DSF331", "offload.path was none, the plan says a disk"),
        ({"batch__global_size": 8}, "DSF332", "12 samples in 3 steps"),
        ({"train__seed": 99}, "DSF332", "train.seed was 7, the recipe says 99"),
        ({"batch__seq_len": 4}, "DSF332", "seq_len was"),
        ({"model__ffn_hidden": 32}, "DSF333", "ffn_hidden was 24, the plan says 32"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, make_plan, change, code, word):
    plan = make_plan(**change)
    with pytest.raises(DsforgeError, match=word) as caught:
        check_fits(manifest(make_plan(), 3), plan, facts(plan), tmp_path)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"heads": 2, "kv_heads": 1, "head_dim": 8}, "model.heads was 4, the plan says 2"),
        ({"rope_theta": 5e5}, "model.rope_theta was 10000.0, the plan says 500000.0"),
        ({"norm_eps": 1e-6}, "model.norm_eps was 1e-05, the plan says 1e-06"),
        ({"position": "alibi"}, "model.position was rope, the plan says alibi"),
        ({"window": 7}, "model.window was none, the plan says 7"),
        ({"hf_config": {"hidden_act": "gelu"}}, "hidden_act of config.json was not set, the plan says gelu"),
    ],
)
def test_weights_of_equal_shapes_under_another_function_do_not_fit(tmp_path, make_plan, changes, told):
    plan = make_plan(**{f"model__{key}": value for key, value in changes.items()})
    saved = manifest(make_plan(), 3)
    assert parameter_entries(plan) == saved.parameters
    with pytest.raises(DsforgeError, match=f"of another model: {told}$") as caught:
        check_fits(saved, plan, facts(plan), tmp_path)
    assert caught.value.code == "DSF333"


def test_of_a_section_of_the_model_the_one_key_that_differs_is_named(make_plan):
    def routed(active):
        return make_plan(model__experts={"count": 4, "active": active, "ffn_hidden": 24, "normalised": True})

    saved = replace(manifest(make_plan(), 3), model=model_facts(routed(2)))
    assert model_difference(saved, routed(1)) == "model.experts.active was 2, the plan says 1"
    assert model_difference(saved, make_plan()) == "model.experts.count was 4, the plan says none"


def test_what_a_checkpoint_of_an_older_build_does_not_say_had_no_choice(tmp_path, make_plan):
    plan, windowed = make_plan(), make_plan(model__window=7)
    whole = manifest(plan, 3)
    older = replace(whole, model={key: whole.model[key] for key in whole.model if "window" not in key})
    check_fits(older, plan, facts(plan), tmp_path)
    with pytest.raises(DsforgeError, match=r"model\.window was none, the plan says 7"):
        check_fits(older, windowed, facts(windowed), tmp_path)


def test_what_training_may_change_or_does_not_use_fits(tmp_path, make_plan):
    config = {"rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    saved = manifest(make_plan(model__hf_config={**config, "initializer_range": 0.1}), 3)
    plan = make_plan(
        model__hf_config={**config, "eos_token_id": 2},
        model__name="renamed",
        model__init_std=0.5,
        train__recompute="full",
        train__dropout=0.1,
        optimizer__lr=0.5,
    )
    check_fits(saved, plan, facts(plan), tmp_path)


def test_a_checkpoint_of_another_trainer_does_not_fit(tmp_path, make_plan):
    saved = replace(manifest(make_plan(), 3), trainer="transformers")
    with pytest.raises(
        DsforgeError, match="saved by the trainer transformers, the plan says forge"
    ) as caught:
        check_fits(saved, make_plan(), facts(make_plan()), tmp_path)
    assert caught.value.code == "DSF331"


def test_a_checkpoint_of_other_stages_does_not_fit(tmp_path, make_plan):
    plan = make_plan()
    saved = manifest(plan, 3)
    layout = {**saved.layout, "layers_of_stage_0": 1, "layers_of_stage_1": 1}
    with pytest.raises(DsforgeError, match="layers of stage 0 was 1, the plan says 2"):
        check_fits(replace(saved, layout=layout), plan, facts(plan), tmp_path)


@pytest.mark.parametrize(
    ("now", "word"),
    [
        ({"tokens": 90}, "100 tokens then, 90 now"),
        ({"fingerprint": "f1"}, "100 tokens, but not the same ones"),
    ],
)
def test_data_made_anew_at_the_same_place_are_other_data(tmp_path, make_plan, now, word):
    plan = make_plan()
    with pytest.raises(DsforgeError, match=word) as caught:
        check_fits(manifest(plan, 3), plan, facts(plan, **now), tmp_path)
    assert caught.value.code == "DSF337"


def test_data_that_were_moved_are_the_same_data(tmp_path, make_plan):
    moved = make_plan(data__train=[{"weight": 2.0, "prefix": "elsewhere/corpus"}])
    check_fits(manifest(make_plan(), 3), moved, facts(moved), tmp_path)


def blend(*weights):
    return [{"weight": weight, "prefix": f"set{d}"} for d, weight in enumerate(weights)]


def test_another_blend_is_another_order_of_samples(tmp_path, make_plan):
    saved = manifest(make_plan(data__train=blend(0.7, 0.3)), 3)
    same = make_plan(data__train=blend(7, 3))
    check_fits(saved, same, facts(same), tmp_path)
    for weights, told in (((1, 1), "1:1"), ((7, 3, 1), "7:3:1"), ((1,), "1")):
        other = make_plan(data__train=blend(*weights))
        with pytest.raises(DsforgeError, match=f"weights was 7:3, the plan says {told}$") as caught:
            check_fits(saved, other, facts(other), tmp_path)
        assert caught.value.code == "DSF332"


@pytest.mark.parametrize(("trainer", "fits"), [("fsdp", True), ("forge", False)])
@pytest.mark.parametrize("change", [{"layout__dp": 4}, {"layout__zero": 1}])
def test_rows_of_fsdp_are_dealt_to_any_number_of_replicas(make_plan, trainer, fits, change):
    before = {"layout__dp": 2, "layout__zero": 3}
    saved, planned = (
        make_plan(**before | more).model_copy(update={"trainer": trainer}) for more in ({}, change)
    )
    assert (layout_difference(manifest(saved, 3), planned) is None) == fits
    # What the rows are of must be the same all the same.
    other = planned.model_copy(update={"optimizer": planned.optimizer.model_copy(update={"type": "lion"})})
    assert layout_difference(manifest(saved, 3), other) is not None
