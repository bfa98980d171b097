"""What a program would do with a script or configuration is said at its place, with the value that counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from dsforge.base.errors import Finding, Severity
from dsforge.foreign.text import Kind
from dsforge.ops.foreign_check import check_foreign
from dsforge.ops.foreign_neox import NeoxFiles
from tests.support.recipes import ROOT

MODEL = (
    "--num-layers 24 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 "
    "--micro-batch-size 1 --global-batch-size 8 --lr 1e-4 --train-iters 10"
)
CASES: list[dict[str, Any]] = YAML(typ="safe").load(
    (ROOT / "tests/data/script_faults.yaml").read_text("utf-8")
)


def found(tmp_path: Path, case: dict[str, Any]) -> tuple[Path, list[Finding]]:
    kind = Kind(case.get("kind", "megatron"))
    path = tmp_path / ("run.yml" if kind is Kind.NEOX else "run.sh")
    path.write_bytes(case["text"].replace("{model}", MODEL).encode())
    return path, list(check_foreign(path, kind, None).findings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_fault_is_found_at_its_place(tmp_path: Path, case: dict[str, Any]):
    path, findings = found(tmp_path, case)
    wanted = case["findings"]
    for one in wanted:
        rows = [
            finding
            for finding in findings
            if finding.code == one["code"]
            and str(finding.place) == f"{path}:{one['place']}"
            and finding.severity == one.get("severity", "error")
            and one["says"] in f"{finding.message} {finding.hint}"
        ]
        assert len(rows) == 1, [(str(row.place), row.code, row.message) for row in findings]
    errors = [one for one in findings if one.severity is Severity.ERROR]
    assert len(errors) == len([one for one in wanted if one.get("severity", "error") == "error"]), errors


def test_what_renders_itself_is_right(tmp_path: Path):
    case = {
        "text": "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
        'echo \'{"train_batch_size": 8, "gradient_clipping": 1.0, "zero_optimization": {"stage": 1}, '
        '"activation_checkpointing": {"partition_activations": true}}\' > ds.json\n'
        "deepspeed --num_gpus 8 pretrain_gpt.py {model} --deepspeed --deepspeed_config ds.json "
        "--zero-stage 1 --checkpoint-activations --deepspeed-activation-checkpointing\n"
    }
    assert found(tmp_path, case)[1] == []


def test_an_option_that_stands_twice_is_a_warning(tmp_path: Path):
    path, findings = found(tmp_path, {"text": "torchrun --nproc_per_node 8 t.py {model} \\\n --lr 2e-4\n"})
    (one,) = findings
    assert (one.code, one.severity, str(one.place)) == ("DSF696", Severity.WARNING, f"{path}:2:2")


def test_keys_and_names_of_two_configurations_are_held_against_each_other(tmp_path: Path):
    (tmp_path / "more").mkdir()
    first, second, third = (tmp_path / name for name in ("a.yml", "b.yml", "more/a.yml"))
    first.write_text("train-iters: 10\nseed: 1\n")
    second.write_text("seed: 2\ntrain-iters: 20\n")
    third.write_text("log_interval: 1\n")
    found = NeoxFiles((second, third)).check(first.read_text(), str(first), None)
    assert [(one.code, str(one.place)) for one in found] == [
        ("DSF604", f"{second}:1:1"),
        ("DSF604", f"{second}:2:1"),
        ("DSF604", f"{third}:1:1"),
    ]
    # The program looks among keys with underscores, so one with dashes overrules what stands before it.
    assert "refuses the files together" in found[0].message
    assert "this one counts without a word" in found[1].message
    assert "same name" in found[2].message
