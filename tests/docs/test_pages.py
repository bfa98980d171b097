"""The documentation: its commands run, its links lead somewhere, its generated pages are whole."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from docs.pages import pages
from dsforge.catalog.tables import errors, hardware, models
from dsforge.launch.checkpoints import difference_from_plan
from dsforge.recipe.consequences import CONSEQUENCES
from dsforge.recipe.fields import fields
from dsforge.recipe.load import load_recipe
from dsforge.rules.registry import rules
from tests.cli.test_commands import SURFACE
from tests.support.checkpoints import manifest
from tests.support.markdown import STARTS_RANKS, blocks, run_page
from tests.support.recipes import ROOT, SHIPPED, plan_of

PAGES = sorted([ROOT / "README.md", ROOT / "docs" / "tutorial.md", *(ROOT / "docs" / "how-to").glob("*.md")])


def _page(path: Path) -> object:
    starts = any(STARTS_RANKS in block.notes for block in blocks(path.read_text("utf-8")))
    return pytest.param(path, id=path.stem, marks=[pytest.mark.e2e] if starts else [])


@pytest.mark.parametrize("page", [_page(path) for path in PAGES])
def test_the_commands_of_a_page_run(page: Path, dsforge: dict[str, str], tmp_path: Path):
    assert run_page(page, tmp_path, dsforge) > 0


@pytest.mark.parametrize("path", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_links_of_the_repositorys_own_pages_lead_somewhere(path: Path):
    """Those of the site are checked by its build."""
    links = re.findall(r"\]\(([^)#:]+)\)", path.read_text("utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_readme_names_every_command():
    names = {
        word for row in _rows((ROOT / "README.md").read_text("utf-8")) for word in re.findall(r"\w+", row[0])
    }
    assert {command.split()[0] for command in SURFACE} <= names


def test_the_readme_has_every_recipe():
    text = (ROOT / "README.md").read_text("utf-8")
    _, _, rest = text.partition("\n## Recipes to start from\n")
    section, _, _ = rest.partition("\n## ")
    named = re.findall(r"\]\(recipes/([\w-]+\.yaml)\)", section)
    assert sorted(named) == [path.name for path in SHIPPED]
    with_data = [path.stem for path in SHIPPED if load_recipe(path).recipe.data is not None]
    told = re.search(r"only (.*) name data", section)
    assert told is not None
    assert sorted(re.findall(r"`([\w-]+)`", told[1])) == with_data


def _rows(text: str) -> list[list[str]]:
    return [
        [cell.strip(" `") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    ]


def test_the_reference_holds_every_key_with_what_it_does():
    text = pages()["recipe.md"]
    rows = {}
    for section in text.split("\n## ")[1:]:
        name = section.partition("\n")[0]
        prefix = "" if name == "Top level" else f"{name}."
        rows |= {f"{prefix}{row[0]}": row[1:] for row in _rows(section)[2:]}
    assert set(rows) == set(fields())
    assert rows["parallel.zero"][:3] == ["0, 1, 2, 3, auto", "auto", "execution"]
    assert rows["batch.global"][1:3] == ["required", "convergence"]
    assert "**forge takes `1f1b`, `gpipe`**: DeepSpeed's pipeline engine" in rows["parallel.schedule"][3]


def test_the_reference_holds_every_command_with_its_options():
    sections = pages()["commands.md"].split("\n## dsforge ")[1:]
    found = {}
    for section in sections:
        options = {
            word for row in _rows(section) for word in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", row[0])
        }
        found[section.partition("\n")[0]] = " ".join(sorted(options))
    assert found == SURFACE


def test_the_reference_holds_every_code_model_and_gpu():
    text = pages()["rules.md"]
    assert [*re.findall(r"^### (DSF\d+)", text, re.MULTILINE)] == list(rules())
    assert [row[0] for row in _rows(text)[2:]] == list(errors())
    named = {row[0] for row in _rows(pages()["presets.md"])}
    assert named >= {*models(), *hardware()}


def test_a_page_is_held_to_what_it_says(tmp_path: Path):
    page = tmp_path / "page.md"
    environ = {"PATH": "/usr/bin:/bin"}

    def run(text: str) -> int:
        page.write_text(text)
        return run_page(page, tmp_path, environ)

    told = "<!-- file a.txt -->\n```text\none\n```\n\n```bash\ncat a.txt; echo two 17 three\n```\n\n"
    assert run(f"{told}<!-- output -->\n```\none\ntwo ... three\n```\n") == 1
    with pytest.raises(AssertionError, match=r"page\.md:11"):
        run(f"{told}<!-- output -->\n```\none\nthree\n```\n")
    assert run("<!-- exits 3 -->\n```bash\nexit 3\n```\n") == 1
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        run("```bash\nfalse | true\n```\n")
    assert run("<!-- not run: why -->\n```bash\nfalse\n```\n") == 0
    for wrong in ("<!-- not run -->\n```bash\nfalse\n```\n", "<!-- exits 1 -->\n\nText.\n"):
        with pytest.raises(ValueError, match="comment"):
            run(wrong)


EXPERTS = {"ffn_hidden": None, "experts": {"count": 4, "active": 2, "ffn_hidden": 32}}
MAY_DIFFER = {
    "batch.micro": 4,
    "train.steps": 60,
    "train.tokens": 122_880,
    "train.eval_every": 10,
    "train.eval_samples": 64,
    "train.recompute": "full",
    "train.recompute_every": 2,
    "train.dropout": 0.1,
    "train.attention_dropout": 0.1,
    "train.balance_loss": 0.01,
    "train.balance_over": "model",
    "train.checks": {"gradients_every": 2, "parameters_every": 2, "modules": True},
    "parallel.schedule": "gpipe",
    "parallel.sequence_parallel": True,
    "optimizer.lr": 1e-4,
    "optimizer.min_lr": 1e-5,
    "optimizer.lr_schedule": "constant",
    "optimizer.warmup_steps": 1,
    "optimizer.grad_clip": 0.5,
    "optimizer.betas": [0.8, 0.9],
    "optimizer.eps": 1e-6,
    "optimizer.weight_decay": 0.5,
    "optimizer.momentum": 0.5,
    "data.valid": "other",
    "data.workers": 3,
    "offload.optimizer": "cpu",
    "offload.parameters": "cpu",
    "cluster": {"nodes": 2, "gpus_per_node": 4, "gpu": "a100-sxm-80gb"},
    "checkpoint": {"dir": "elsewhere", "every_steps": 7, "keep": 1},
    "launch": {"restarts": 3, "env": {"A": "1"}},
    "monitor": {"tensorboard": True},
    "name": "other",
}
MAY_NOT = {
    "trainer": "megatron-core",
    "model": {"norm_eps": 1e-3},
    "parallel.tp": 1,
    "parallel.pp": 1,
    "parallel.cp": 2,
    "parallel.dp": 1,
    "parallel.vp": 2,
    "parallel.ep": 2,
    "parallel.zero": 0,
    "parallel.partition": "uniform",
    "parallel.partition_weights": "layers.json",
    "train.precision": "bf16",
    "optimizer.type": "lion",
    "offload.path": "/tmp",
    "batch.global": 64,
    "batch.seq_len": 32,
    "train.seed": 5,
    "data.train": [[0.5, "a"], [0.5, "b"]],
    "data.tokenizer": None,
}
BY_FILES = {"data.tokenizer", "parallel.partition_weights"}
"""What their files hold decides: tokens, and the layers of each stage."""
NO_VALUES = {"version", "extends", "profiles", "external"}
"""How a recipe is written, and a program that keeps checkpoints of its own."""
NEEDED = {
    "train.recompute_every": {"train": {"recompute": "full"}},
    "parallel.cp": {"trainer": "megatron-core", "parallel": {"tp": 1}},
    "parallel.vp": {"trainer": "megatron-core", "parallel": {"partition": "uniform"}},
    "parallel.ep": {"trainer": "megatron-core", "model": EXPERTS, "parallel": {"tp": 1}},
    "train.tokens": {"train": {"steps": None, "tokens": 61_440}},
    "train.balance_over": {
        "trainer": "transformers",
        "model": EXPERTS,
        "parallel": {"tp": 1, "pp": 1},
        "train": {"balance_loss": 0.01},
    },
    "train.balance_loss": {"trainer": "megatron-core", "model": EXPERTS, "parallel": {"tp": 1}},
    "parallel.partition": {"model": {"layers": 8, "vocab": 32768}, "parallel": {"pp": 4}},
    "optimizer.momentum": {"optimizer": {"type": "sgd"}},
    "offload.parameters": {"parallel": {"pp": 1, "zero": 3}, "offload": {"optimizer": "cpu"}},
}
"""What a recipe has on both sides for the key to have a meaning."""


@pytest.mark.parametrize(("row", "values"), [("may differ", MAY_DIFFER), ("may not", MAY_NOT)])
def test_the_page_on_restarts_says_what_a_checkpoint_lets_differ(row: str, values: dict[str, object]):
    text = (ROOT / "docs" / "how-to" / "restarts.md").read_text("utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {row} |")]
    assert list(dict.fromkeys(re.findall(r"`([a-z_.]+)`", line))) == list(values)
    refused = {}
    for key in values.keys() - BY_FILES:
        value = values[key]
        both = [
            {"parallel": {"dp": "auto"}, "train": {"eval_every": 5}},
            {"data": {"train": [[0.7, "a"], [0.3, "b"]], "valid": "held-out"}},
            NEEDED.get(key, {}),
        ]
        section, _, name = key.partition(".")
        new: dict[str, Any] = {section: _nested(name, value) if name else value}
        fewer = {"cluster": {"gpus_per_node": 4}} if key == "parallel.dp" else {}
        saved = manifest(plan_of(*both), 3)
        refused[key] = difference_from_plan(saved, plan_of(*both, new, fewer)) is not None
    assert refused == dict.fromkeys(values.keys() - BY_FILES, row == "may not")


def test_every_key_may_differ_from_a_checkpoint_or_may_not():
    known = {*MAY_DIFFER, *MAY_NOT, *NO_VALUES}
    under = {key: {name for name in known if f"{key}.".startswith(f"{name}.")} for key in CONSEQUENCES}
    sections = {name.partition(".")[0] for name in known}
    assert {key: found for key, found in under.items() if len(found) != 1 and key not in sections} == {}


def _nested(name: str, value: object) -> dict[str, Any]:
    first, _, rest = name.partition(".")
    return {first: _nested(rest, value) if rest else value}
