import pytest
import torch

from dsforge.base.errors import DsforgeError
from dsforge.train import slicing
from dsforge.train.dump import dump, whole_shards
from dsforge.train.gather import gather
from dsforge.train.parameters import model_parameters
from dsforge.train.world import Coordinates


def write(folder, specs, full, stage=0, replica=0):
    for shard in range(2):
        parameters = {}
        for name, tensor in full.items():
            spec = specs[name]
            padded = slicing.pad_rows(tensor, spec.padded_rows) if spec.padded_rows else tensor
            cut = slicing.cut(padded, spec.partition_dim, spec.partition_stride, 2, shard)
            parameters[name] = torch.nn.Parameter(cut)
        dump(whole_shards(parameters), specs, Coordinates(shard=shard, stage=stage, replica=replica), folder)


@pytest.fixture
def specs(make_plan):
    return {spec.name: spec for spec in model_parameters(make_plan(model__padded_vocab=256).model)}


def test_shards_become_the_whole_model_again(tmp_path, specs):
    full = {name: torch.randn(spec.shape) for name, spec in specs.items()}
    first = {name: value for name, value in full.items() if not name.startswith(("head", "final"))}
    last = {name: value for name, value in full.items() if name not in first}
    write(tmp_path, specs, first, stage=0)
    write(tmp_path, specs, last, stage=1)
    whole = gather(tmp_path)
    assert whole.keys() == full.keys()
    assert all(torch.equal(whole[name], full[name]) for name in full)


def test_other_replicas_write_nothing(tmp_path, specs):
    write(tmp_path / "dump", specs, {"final_norm.weight": torch.ones(16)}, replica=1)
    with pytest.raises(DsforgeError) as caught:
        gather(tmp_path / "dump")
    assert caught.value.code == "DSF340"


def test_copies_of_a_tied_weight_must_be_equal(tmp_path, specs):
    table = torch.randn(specs["embedding.word.weight"].shape)
    write(tmp_path, specs, {"embedding.word.weight": table}, stage=0)
    write(tmp_path, specs, {"embedding.word.weight": table}, stage=1)
    assert torch.equal(gather(tmp_path)["embedding.word.weight"], table)
    write(tmp_path, specs, {"embedding.word.weight": table + 1e-6}, stage=1)
    with pytest.raises(DsforgeError, match=r"stage 1 holds another embedding\.word\.weight"):
        gather(tmp_path)
