"""The founding advice by scale comes out of the search: replicas for small models, then TP, then a pipeline.

Model, cluster and batch are the recipes'; only the layout is left open.
"""

from __future__ import annotations

import pytest

from dsforge.plan.ranking import Judge, opened, ranking
from dsforge.plan.search.best import Found
from dsforge.recipe.load import LoadedRecipe, load_recipe
from tests.support.recipes import ROOT


def loaded(name: str, *changes: str) -> LoadedRecipe:
    return load_recipe(ROOT / "recipes" / f"{name}.yaml", list(changes))


def best(name: str, *changes: str) -> Found:
    return ranking(opened(loaded(name, *changes), everything=True), top=1, objective="time").found[0]


@pytest.mark.parametrize("model", ["gpt2", "gpt3-1.3b"])
def test_small_models_are_replicas_that_share_their_states(model: str):
    one = best("gpt2-8gpu", f"model={model}", "batch.seq_len=1024").candidate
    assert (one.tp, one.pp, one.dp) == (1, 1, 8)
    assert one.zero >= 1


def test_ten_billion_parameters_are_split_by_tp_and_zero():
    changes = ("model=gpt3-13b", "cluster={nodes: 8, gpus_per_node: 8, gpu: a100-sxm-40gb}")
    one = best("llama3-8b-64h100", *changes, "batch={global: 1024, seq_len: 2048}").candidate
    assert one.tp > 1
    assert one.pp == 1
    assert one.zero >= 1


def test_175_billion_parameters_on_1024_gpus_get_the_worked_example():
    found = best("gpt3-175b-1024a100")
    one = found.candidate
    assert (one.tp, one.pp, one.dp, one.zero) == (8, 8, 16, 1)
    assert found.memory_bytes < 80 * 2**30


def test_a_trillion_parameters_need_tp_of_a_whole_node_and_a_deep_pipeline():
    one = best("gpt-1t-3072a100").candidate
    assert one.tp == 8
    assert one.pp >= 32


def test_why_not_is_one_code_and_one_number():
    judge = Judge(opened(loaded("gpt3-175b-1024a100"), everything=True))
    flat = judge.verdict({"parallel.tp": 1, "parallel.pp": 1, "parallel.zero": 0})
    assert (flat.kind, flat.code) == ("illegal", "DSF122")
    whole = judge.verdict({"parallel.tp": 2, "parallel.pp": 1, "parallel.zero": 1})
    assert (whole.kind, whole.code) == ("does not fit", "DSF770")
    assert "no layout fits: the smallest takes " in whole.message
    assert " GB of 85.9 GB" in whole.message
    shallow = judge.verdict({"parallel.tp": 8, "parallel.pp": 32})
    assert (shallow.kind, shallow.code) == ("slower", None)
    assert shallow.found is not None
    assert judge.chosen is not None
    more = shallow.found.step.total / judge.chosen.step.total - 1
    assert f": {more:+.1%}: " in shallow.message
    # The part that is named is the one that grew most: the head, on one stage in 32 instead of one in 8.
    assert f"head {shallow.found.step.head:.3g} s, not {judge.chosen.step.head:.3g}" in shallow.message
    own = judge.verdict(judge.chosen.candidate.values())
    assert own.kind == "chosen"


def test_values_of_a_key_that_were_not_chosen_have_their_reasons():
    judge = Judge(opened(loaded("llama2-7b-8a100"), everything=True))
    assert judge.chosen is not None
    others = dict(judge.others("parallel.zero"))
    assert set(others) == {0, 1, 2, 3} - {judge.chosen.candidate.zero}
    # ZeRO-0 trains rightly with a pipeline alone, where it costs time; no key is left without its reason.
    assert others[0].found is not None
    assert others[0].found.candidate.pp > 1
    assert {verdict.kind for verdict in others.values()} == {"slower"}
