"""What DeepSpeed would really do with a file, against known faults and against the library itself."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from dsforge.base.errors import DsforgeError, Finding, Severity
from dsforge.catalog.engines.deepspeed import Key, Section, known_keys
from dsforge.catalog.engines.deepspeed_releases import keys_at, releases
from dsforge.foreign.deepspeed.check import check_deepspeed
from tests.support.recipes import ROOT

FAULTS = YAML(typ="safe", pure=True).load((ROOT / "tests/data/foreign_faults.yaml").read_text("utf-8"))
FOREIGN = ROOT / "tests/data/foreign"
REJECTING = {"DSF604", "DSF611", "DSF612", "DSF615", "DSF620", "DSF622", "DSF630"}


def findings(text: str, **options: Any) -> list[Finding]:
    version = options.pop("version", None)
    keys = known_keys() if version is None else keys_at(version)
    return check_deepspeed(text, "ds.json", keys, **options)


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case["id"])
def test_a_fault_is_named_at_its_place(case: dict[str, Any]):
    found = findings(case["text"], replicas=case.get("replicas"), version=case.get("version"))
    for wanted in case["findings"]:
        matches = [
            one
            for one in found
            if one.code == wanted["code"]
            and str(one.place) == f"ds.json:{wanted['place']}"
            and wanted["says"] in f"{one.message} {one.hint}"
        ]
        assert len(matches) == 1, [(one.code, str(one.place), one.message, one.hint) for one in found]
        assert matches[0].severity.value == wanted.get("severity", "error")
        if "fix" in wanted:
            assert matches[0].fix is not None
            assert [matches[0].fix.key, matches[0].fix.value] == wanted["fix"]


def test_a_fault_brings_no_other_errors():
    """Each case has the errors that it lists, and no more."""
    for case in FAULTS:
        errors = {
            (one.code, str(one.place))
            for one in findings(case["text"], replicas=case.get("replicas"), version=case.get("version"))
            if one.severity is Severity.ERROR
        }
        listed = {
            (one["code"], f"ds.json:{one['place']}")
            for one in case["findings"]
            if one.get("severity", "error") == "error"
        }
        assert errors == listed, case["id"]


@pytest.mark.parametrize(
    "name", ["megatron_pipeline", "bloom_like", "fp32_zero2", "offload_zero3", "fp16_old"]
)
def test_files_that_train_have_no_errors(name: str):
    text = (FOREIGN / f"{name}.json").read_text("utf-8")
    assert [one for one in findings(text, replicas=8) if one.severity is Severity.ERROR] == []


def test_the_trainer_of_hugging_face_fills_auto_in():
    text = (FOREIGN / "hf_zero3_auto.json").read_text("utf-8")
    assert {one.code for one in findings(text)} == {"DSF613"}
    assert findings(text, trainer_fills_auto=True) == []


def _keys(section: Section, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Key]]:
    for name, key in section.keys.items():
        yield (*at, name), key
        if key.section is not None:
            yield from _keys(key.section, (*at, name))


VALUES = [True, 3, 0, -1, 1.5, 1e3, "7", "1e3", "true", "nonsense", [1], {"a": 1}, None]
STRICTER = {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}
"""Where the library computes with true and 1000.0, and we ask for a whole number."""


def test_the_library_agrees_key_by_key():
    """Every key of the table with thirteen values: what we call rejected is, and little else is."""
    pytest.importorskip("deepspeed")
    from dsforge.train.config_keys import read

    logging.disable(logging.CRITICAL)
    judged = missed = 0
    try:
        for path, _ in _keys(known_keys().top):
            if path[0] in STRICTER:
                continue
            for value in VALUES:
                content: Any = value
                for key in reversed(path):
                    content = {key: content}
                config = {"train_batch_size": 1, **content}
                found = findings(json.dumps(config), replicas=1)
                rejected = any(one.code in REJECTING for one in found)
                try:
                    read(json.loads(json.dumps(config)))
                    taken = True
                except Exception:
                    taken = False
                assert not (taken and rejected), (path, value, [one.message for one in found])
                judged += 1
                missed += not taken and not any(one.severity is Severity.ERROR for one in found)
    finally:
        logging.disable(logging.NOTSET)
    assert judged > 4000
    # What is left are values that only a condition in the library's code refuses; `--probe` tells those.
    assert missed / judged < 0.025


def test_defaults_move_with_the_version():
    text = '{"train_batch_size": 8}'
    assert {one.code for one in findings(text, version="0.19.0")} == {"DSF621"}
    assert {one.code for one in findings(text, version="0.19.4")} == {"DSF621", "DSF631"}


@pytest.mark.parametrize("version", ["0.5.9", "0.20.0", "1", "latest", "9" * 5000])
def test_a_version_that_is_not_known_is_told(version: str):
    with pytest.raises(DsforgeError) as caught:
        keys_at(version)
    assert (caught.value.code, caught.value.exit_code) == ("DSF619", 2)
    assert "0.5.10 to 0.19.8" in (caught.value.hint or "")


def test_what_a_build_adds_to_a_version_is_not_its_number():
    assert keys_at("0.9.5+cu118").coming.keys() == keys_at("0.9.5").coming.keys()


def test_rows_of_releases_are_about_keys_of_the_table():
    known = {".".join(path) for path, _ in _keys(known_keys().top)} | set(known_keys().removed)
    rows = releases()
    assert (rows.since.keys() | rows.last.keys() | rows.checked.keys() | rows.before.keys()) <= known
    assert rows.last.keys() == known_keys().removed
    assert {*rows.since.values(), *rows.last.values(), *rows.checked.values()} <= set(rows.read)
    assert rows.read[-1] == known_keys().version


@pytest.mark.parametrize("path", sorted(FOREIGN.glob("*.json")), ids=lambda path: path.stem)
def test_every_key_of_the_examples_is_in_the_table(path: Path):
    unknown = [one.key for one in findings(path.read_text("utf-8")) if one.code in ("DSF610", "DSF611")]
    assert unknown == (["output_dir"] if path.stem == "megatron_template" else [])


def test_a_file_of_the_trainer_s_is_its_own_alone():
    text = (FOREIGN / "finetune_z3_auto.json").read_text("utf-8")
    assert findings(text, trainer_fills_auto=True) == []
    errors = [one.key for one in findings(text) if one.severity is Severity.ERROR]
    batch = ["train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"]
    assert errors == [*batch, "gradient_clipping", "fp16.enabled", "bf16.enabled"]
