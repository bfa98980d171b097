"""The catalogue: every row has a source, every name resolves, a wrong one names the nearest."""

from __future__ import annotations

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.catalog.families import TRAITS, families
from dsforge.catalog.tables import (
    cluster_shapes,
    errors,
    find_hardware,
    find_model,
    hardware,
    hardware_of_device,
    models,
    sizes,
)
from dsforge.cost.calibration import calibration
from dsforge.cost.machine import machine_of


def test_every_row_has_a_source():
    assert all(model.source for model in models().values())
    assert all(gpu.source for gpu in hardware().values())
    assert all(family.source for family in families().values())


def test_every_key_of_a_row_is_read():
    known = {
        "arch",
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "head_dim",
        "ffn_hidden",
        "vocab",
        "tied",
        "norm_eps",
    }
    known |= {"max_positions", "rope_theta", "embedding_width", "experts", "latent", *TRAITS}
    for model in models().values():
        assert set(model.shape) <= known, model.name
        assert model.shape["arch"] in families()


def test_a_family_takes_what_it_does_not_set_from_the_one_it_is_like():
    gemma2, llama = families()["gemma2"], families()["llama"]
    assert (gemma2.traits.norm, gemma2.traits.layer_norms, gemma2.tied) == (llama.traits.norm, 4, True)
    assert (llama.traits.layer_norms, llama.tied, families()["opt"].traits.mlp_bias) == (2, False, True)


def test_a_gpu_is_known_by_the_drivers_name():
    names = [name for kind in hardware().values() for name in kind.device_names]
    assert len(names) == len(set(names))
    found = {name: kind for name in names if (kind := hardware_of_device(name))}
    assert found["NVIDIA H100 80GB HBM3"].peak_tflops["bf16"] == 989.4
    assert found["A100-SXM4-40GB"].memory_bytes == 40 * 2**30
    assert found["Tesla V100-SXM2-32GB"].peak_tflops == {"fp32": 15.7, "fp16": 125}  # it has no bf16
    assert hardware_of_device("NVIDIA T4") is None
    assert all(kind.peak_tflops for kind in hardware().values() if kind.accelerator == "cuda")


def test_sizes_and_names_in_any_case():
    assert find_model("13b").name == find_model(" 13B ").name == find_model("GPT3-13B").name == "gpt3-13b"
    assert {find_model(size).name for size in sizes()} <= set(models())
    assert find_hardware("H100-SXM-80GB").memory_bytes == 80 * 2**30
    assert find_hardware("h200-sxm-141gb").memory_bytes == 141 * 10**9
    assert find_hardware("cpu").memory_bytes is None


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("gpt-2", "`gpt2`"),
        ("llama-3-8b", "`llama3-8b`"),
        ("lama3-70b", "`llama3-70b`"),
        ("meta-llama/Llama-3.1-8B", "config.json"),
        ("qq", "presets list"),
    ],
)
def test_a_wrong_model_names_the_nearest(wrong: str, near: str):
    with pytest.raises(DsforgeError) as caught:
        find_model(wrong)
    assert caught.value.code == "DSF030"
    assert near in (caught.value.hint or "")


@pytest.mark.parametrize(("wrong", "near"), [("a100", "`a100-sxm-"), ("h100", "`h100-"), ("quantum", "list")])
def test_a_wrong_gpu_names_the_nearest(wrong: str, near: str):
    with pytest.raises(DsforgeError) as caught:
        find_hardware(wrong)
    assert caught.value.code == "DSF031"
    assert near in (caught.value.hint or "")


def test_unknown_names_in_a_recipe_are_told_together_with_their_places():
    from dsforge.plan.resolve import examine
    from tests.support.recipes import loaded

    found = examine(loaded({"model": "gpt5", "cluster": {"gpu": "h1000"}}))
    assert [(one.code, one.key) for one in found] == [("DSF030", "model"), ("DSF031", "cluster.gpu")]


def test_an_error_that_says_why_says_what_to_do():
    assert errors()["DSF047"].why == ""
    assert "--tokenizer FIRST.tokenizer.json" in errors()["DSF046"].mend
    explained = {code for code, meaning in errors().items() if meaning.why}
    assert explained == {code for code, meaning in errors().items() if meaning.mend}
    assert explained >= {"DSF010", "DSF045", "DSF203", "DSF213", "DSF331", "DSF350"}
    assert all(text.endswith(".") for code in explained for text in (errors()[code].why, errors()[code].mend))


def test_rented_machines_hold_gpus_of_the_catalogue_and_known_networks():
    assert {shape.gpu for shape in cluster_shapes().values()} <= set(hardware())
    assert {shape.fabric for shape in cluster_shapes().values()} <= set(calibration().fabrics)
    assert cluster_shapes()["aws-p4d.24xlarge"].network_gb_s * 8 * 8 == 400  # Gb/s a machine
    assert cluster_shapes()["azure-nd96isr-h100-v5"].network_gb_s * 8 == 400  # Gb/s a GPU


def test_every_gpu_has_what_an_estimate_needs():
    """Of each kind that the catalogue names: a machine of the cost model, from rates or from peaks."""
    for kind in hardware().values():
        machine = machine_of(kind.name, 8)
        assert (machine is None) == (kind.accelerator == "cpu"), kind.name
        if machine is not None:
            assert machine.generation in calibration().generations
            assert kind.watts
            peak = kind.peak_tflops.get("bf16") or kind.peak_tflops["fp16"]
            assert 0.5 * peak < machine.matmul_tflops < peak, kind.name
