import pytest
import torch

from dsforge.base.errors import DsforgeError
from dsforge.train import slicing
from dsforge.train.dump import dump, whole_shards
from dsforge.train.gather import gather
from dsforge.train.parameters import model_parameters
from dsforge.train.world import Coordinates


def write(folder, specs, full, layout, stage=0, replica=0):
    for shard in range(2):
        parameters = {}
        for name, tensor in full.items():
            spec = specs[name]
            padded = slicing.pad_rows(tensor, spec.padded_rows) if spec.padded_rows else tensor
            cut = slicing.cut(padded, spec.partition_dim, spec.partition_stride, 2, shard)
            parameters[name] = torch.nn.Parameter(cut)
        where = Coordinates(shard=shard, stage=stage, replica=replica)
        dump(whole_shards(parameters), specs, where, layout, folder)


@pytest.fixture
def plan(make_plan):
    return make_plan(model__padded_vocab=256, layout__tp=2)


@pytest.fixture
def specs(plan):
    return {spec.name: spec for spec in model_parameters(plan.model)}


def test_shards_become_the_whole_model_again(tmp_path, specs, plan):
    full = {name: torch.randn(spec.shape) for name, spec in specs.items()}
    first = {name: value for name, value in full.items() if not name.startswith(("head", "final"))}
    last = {name: value for name, value in full.items() if name not in first}
    write(tmp_path, specs, first, plan.layout, stage=0)
    write(tmp_path, specs, last, plan.layout, stage=1)
    whole = gather(tmp_path)
    assert whole.keys() == full.keys()
    assert all(torch.equal(whole[name], full[name]) for name in full)


def test_other_replicas_write_nothing(tmp_path, specs, plan):
    write(tmp_path / "dump", specs, {"final_norm.weight": torch.ones(16)}, plan.layout, replica=1)
    with pytest.raises(DsforgeError) as caught:
        gather(tmp_path / "dump")
    assert caught.value.code == "DSF340"


def test_copies_of_a_tied_weight_must_be_equal(tmp_path, specs, plan):
    table = torch.randn(specs["embedding.word.weight"].shape)
    write(tmp_path, specs, {"embedding.word.weight": table}, plan.layout, stage=0)
    write(tmp_path, specs, {"embedding.word.weight": table}, plan.layout, stage=1)
    assert torch.equal(gather(tmp_path)["embedding.word.weight"], table)
    write(tmp_path, specs, {"embedding.word.weight": table + 1e-6}, plan.layout, stage=1)
    with pytest.raises(DsforgeError, match=r"stage 1 holds another embedding\.word\.weight"):
        gather(tmp_path)


@pytest.mark.parametrize("ep", [1, 2, 4])
def test_experts_come_once_each_from_wherever_they_are(tmp_path, make_plan, ep):
    """TP 2 x DP 2: with EP 4 the second replica has experts that the first one lacks, with EP 2 the same."""
    experts = {"count": 4, "active": 2, "ffn_hidden": 8, "dense_layers": (1,)}
    plan = make_plan(
        model__padded_vocab=256, model__experts=experts, layout__tp=2, layout__dp=2, layout__ep=ep
    )
    specs = {spec.name: spec for spec in model_parameters(plan.model)}
    full = {name: torch.randn(spec.shape) for name, spec in specs.items()}
    for rank in range(4):
        held = {}
        for name, tensor in full.items():
            spec = specs[name]
            padded = slicing.pad_rows(tensor, spec.padded_rows) if spec.padded_rows else tensor
            if spec.of_expert and int(name.split(".")[4]) // (4 // ep) != rank % ep:
                continue
            cuts = 1 if spec.of_expert and ep > 1 else 2
            held[name] = slicing.cut(padded, spec.partition_dim, spec.partition_stride, cuts, rank % 2)
        where = Coordinates(shard=rank % 2, stage=0, replica=rank // 2)
        dump(whole_shards(held), specs, where, plan.layout, tmp_path)
    whole = gather(tmp_path)
    assert whole.keys() == full.keys()
    assert all(torch.equal(whole[name], full[name]) for name in full)
