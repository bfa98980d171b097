"""Accelerate's YAML: what its launcher rejects, never reads or contradicts."""

from __future__ import annotations

import pytest

from dsforge.catalog.engines.accelerate import accelerate_keys
from dsforge.foreign.accelerate import check_accelerate
from tests.support.recipes import ROOT

EXAMPLE = (ROOT / "tests/data/foreign/accelerate_deepspeed.yaml").read_text("utf-8")


def findings(text: str) -> list[tuple[str, str | None, str, str]]:
    found = check_accelerate(text, "a.yaml", accelerate_keys())
    return [(one.code, str(one.place).partition(":")[2], one.message, one.hint or "") for one in found]


@pytest.mark.parametrize("name", ["accelerate_deepspeed", "accelerate_fsdp"])
def test_what_the_questionnaire_writes_is_clean(name: str):
    assert findings((ROOT / f"tests/data/foreign/{name}.yaml").read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("old", "new", "code", "place", "says"),
    [
        ("num_machines", "num_machine", "DSF661", "17:1", "did you mean `num_machines`?"),
        ("  zero_stage", "  zero_stages", "DSF610", "11:3", "deepspeed_config.zero_stage"),
        ("distributed_type: DEEPSPEED", "distributed_type: MULTI_GPU", "DSF662", "3:1", "to DEEPSPEED"),
        ("num_machines: 1", "num_machines: []", "DSF661", "17:1", "counts with a whole number"),
        ("num_processes: 8", 'num_processes: "8"', "DSF661", "18:1", "a whole number of at least 1"),
        ("  zero_stage: 3", "  zero_stage: 4", "DSF661", "11:3", "at most 3"),
        ("mixed_precision: bf16", "mixed_precision: bf17", "DSF661", "16:1", "one of no, fp16, bf16, fp8"),
        ("num_machines: 1", "num_machines: 3", "DSF662", "18:1", "counts all machines"),
        ("  zero_stage: 3", "  zero_stage: 3\n  deepspeed_config_file: d.json", "DSF662", "11:3", "the JSON"),
    ],
)  # fmt: skip
def test_a_fault_is_named(old: str, new: str, code: str, place: str, says: str):
    assert old in EXAMPLE
    found = findings(EXAMPLE.replace(old, new))
    assert [one for one in found if one[0] == code and one[1] == place and says in f"{one[2]} {one[3]}"], (
        found
    )


def test_no_means_text():
    found = findings("distributed_type: false\n")
    assert [(code, place) for code, place, _, _ in found] == [("DSF661", "1:1")]
    assert "quote it: 'NO'" in found[0][3]
