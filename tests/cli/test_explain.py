"""`plan` with a search, and `explain`: tables, pictures, figures in JSON, and errors in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.recipes import ROOT, write

Cli = Callable[..., Any]
MEGATRON = str(ROOT / "recipes" / "llama3-8b-megatron-lm.yaml")
FSDP = str(ROOT / "recipes" / "llama3-8b-fsdp.yaml")
GPT3 = str(ROOT / "recipes" / "gpt3-175b-1024a100.yaml")


def test_a_search_plans_the_best_layout_and_shows_the_next_ones(cli: Cli):
    shown = cli("plan", MEGATRON, "--search", "--top", "3", "--gpus", "16")
    assert shown.code == 0
    table = shown.out.split("Best layouts by time\n")[1].splitlines()
    assert len(table) == 4
    columns = table[0].split()
    assert columns[:3] == ["TP", "PP", "DP"] or columns[:4] == ["TP", "PP", "CP", "DP"]
    tp, pp = table[1].split()[:2]
    assert f"layout   TP {tp} x PP {pp}" in shown.out
    assert "= 16 ranks on 2 x 8 a100-sxm-80gb" in shown.out
    assert "parallel.tp" in shown.out.split("Decided here")[1]
    assert "%: " in table[2] or "ties go to" in table[2]
    made = cli("plan", MEGATRON, "--search", "--top", "3", "--gpus", "16", "--json").json
    best = made["layouts"]["best"]
    assert [one["gpus"] for one in best] == [16, 16, 16]
    assert best[0]["values"]["parallel.tp"] == made["layout"]["tp"] == int(tp)
    assert best[0]["step"]["total"] == pytest.approx(made["estimate"]["step"]["total"])
    assert best[0]["step"]["total"] <= best[1]["step"]["total"]


def test_the_schedule_is_drawn_as_wide_as_a_line_and_its_figures_are_in_json(cli: Cli):
    shown = cli("plan", GPT3)
    lines = shown.out.split("Schedule ")[1].splitlines()
    assert (
        lines[0]
        == "1f1b: 96 micro-batches over 8 stages, which stand still 6.8% of the pipeline's part of a step"
    )
    rows = [line.split() for line in lines[1:9]]
    assert [stage for stage, _ in rows] == [str(stage) for stage in range(8)]
    assert all(len(line) <= 80 for line in lines[1:9])
    # 17 micro-batches: the first stage warms up with 8 and waits for the way back, the last never waits.
    assert rows[0][1].startswith("ffffffff..............BBfBBf")
    assert rows[7][1] == "......." + 17 * "fBB" + 14 * "."
    schedule = cli("plan", GPT3, "--json").json["schedule"]
    assert (schedule["micro_batches"], schedule["stages"]) == (96, 8)
    assert schedule["bubble"] == pytest.approx(7 / 103)
    first = schedule["passes"][0]["passes"]
    assert first[0] == {"kind": "F", "micro": 0, "part": 0, "start": 0.0, "end": 1.0}


def test_explain_says_where_a_value_came_from_and_what_else_there_was(cli: Cli):
    shown = cli("explain", MEGATRON, "parallel.tp", "batch.micro", "parallel.tp=auto")
    assert shown.code == 0
    text = shown.out.splitlines()
    assert text[1:3] == [
        "  from     argument `parallel.tp=auto`",
        "  because  the fastest layout that fits, by the cost model",
    ]
    assert sum(line.startswith("  not ") for line in text) == 3
    assert "  not 8: slower: " in shown.out
    assert shown.out.endswith(f"batch.micro: 1\n  from     {MEGATRON}:8:22\n")
    made = cli("explain", MEGATRON, "parallel.tp", "parallel.tp=auto", "--json").json
    (value,) = made["values"]
    assert {one["value"] for one in value["others"]} == {1, 2, 4, 8} - {value["value"]}
    assert made["layout"] is None


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        ("tp=5,pp=8", "DSF101 illegal: 96 heads cannot be split over TP 5"),
        ("zero=2", "DSF120 illegal: ZeRO-2 with PP 8"),
        ("tp=8,pp=8,vp=2", "DSF140 illegal: `parallel.vp: 2` cannot be honoured"),
        ("tp=1,pp=8", "DSF160 does not fit: the fullest rank needs 181.2 GB"),
        ("micro=16,recompute=none", "DSF770 does not fit: no layout fits: the smallest takes "),
        ("tp=8,pp=8", "chosen: this is the chosen layout: "),
        ("tp=8,pp=16", "slower: "),
    ],
)
def test_explain_says_why_a_layout_lost(cli: Cli, layout: str, told: str):
    shown = cli("explain", GPT3, "--layout", layout)
    assert shown.code == 0
    assert shown.out.startswith(told)


def test_a_plan_says_what_is_off_the_gpu(cli: Cli):
    shown = cli("plan", FSDP, "--search", "model=llama3-70b")
    assert shown.code == 0
    assert "  off the GPU: the optimizer's states and parameters" in shown.out
    assert "the fullest rank's total is 0% of the 85.9 GB" in shown.out
    # 4 weights + 4 gradients + 8 moments of 70.55B parameters, all on the one node.
    assert "besides 1.1 TB of a node's memory" in shown.out


def test_what_runs_nowhere_here_is_planned_and_not_rendered(cli: Cli, tmp_path: Path):
    gaudi = "cluster.gpu=gaudi-3-128gb"
    shown = cli("plan", FSDP, gaudi)
    assert shown.code == 0
    assert "warning[DSF760]" in shown.err
    refused = cli("render", FSDP, gaudi, "-o", str(tmp_path / "bundle"))
    assert refused.code == 1
    assert "error[DSF760]" in refused.err


def test_a_verdict_tells_what_else_differs(cli: Cli):
    opened = ["parallel.tp=auto", "batch.micro=auto"]
    asked = ("--layout", "tp=8")
    told = cli("explain", MEGATRON, *opened, *asked, "--json").json["layout"]
    own = cli("plan", MEGATRON, *opened, "--json").json
    values = told["values"]
    assert values["parallel.tp"] == 8
    assert values["batch.micro"] != own["batch"]["micro"]
    assert f"micro {values['batch.micro']}" in told["message"].split(", the chosen ")[0]
    assert f"micro {own['batch']['micro']}" in told["message"].split(", the chosen ")[1]
    alone = cli("explain", GPT3, "--layout", "tp=8,pp=16").out
    assert " with " not in alone  # only the DP that TP and PP leave differs


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        ("tp=3", "DSF101 illegal: 4 heads cannot be split over TP 3"),
        ("zero=2", "DSF120 illegal: ZeRO-2 with PP 2"),
        ("tp=1", "legal: there is nothing to compare it by: CPU runs prove logic, not speed"),
    ],
)
def test_without_costs_the_rules_still_speak(cli: Cli, layout: str, told: str):
    shown = cli("explain", str(ROOT / "recipes" / "smoke.yaml"), "--layout", layout)
    assert shown.code == 0
    assert shown.out.startswith(told)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["explain", GPT3], "DSF778", "nothing to explain is named"),
        (["explain", GPT3, "parallel.tq"], "DSF778", "there is no key `parallel.tq`"),
        (["explain", GPT3, "--layout", "tp"], "DSF778", "`tp` says nothing of a layout"),
        (["explain", GPT3, "--layout", "tp=0"], "DSF778", "`0` is no value of parallel.tp"),
        (["explain", GPT3, "--layout", "tp=-1"], "DSF778", "`-1` is no value of parallel.tp"),
        (["explain", GPT3, "--layout", "tp=2,tp=4"], "DSF778", "parallel.tp has two values"),
        (["explain", GPT3, "--layout", "tp=2,parallel.tp=2"], "DSF778", "parallel.tp has two values"),
        (["explain", GPT3, "--layout", "tp=auto"], "DSF778", "`auto` leaves open what parallel.tp"),
        (["explain", GPT3, "--layout", "recompute=some"], "DSF778", "`some` is no value of train.recompute"),
        (["plan", GPT3, "--top", "3"], "DSF779", "the recipe fixes the layout"),
        (["plan", GPT3, "--objective", "memory"], "DSF779", "the recipe fixes the layout"),
        (["plan", GPT3, "--gpus", "12"], "DSF779", "12 GPUs are no whole nodes of 8"),
        (["plan", GPT3, "--gpus", "8388616"], "DSF779", "are 1048577 nodes of 8, and a recipe has 1048576"),
        (["plan", GPT3, "--gpus", "8796093022208"], "DSF779", "are 1099511627776 nodes of 8"),
        (["plan", GPT3, "cluster.storage_gb_per_s=1e-320"], "DSF010", "is `1e-320`"),
        (["plan", str(ROOT / "recipes" / "smoke.yaml"), "--search"], "DSF779", "CPU runs prove logic"),
    ],
)
def test_what_cannot_be_told_is_one_error(cli: Cli, words: list[str], code: str, message: str):
    shown = cli(*words)
    assert shown.code == 2
    assert f"error[{code}]: " in shown.err
    assert message in shown.err


def test_auto_is_rendered_alike_every_time(cli: Cli, tmp_path: Path):
    text = (
        Path(MEGATRON)
        .read_text("utf-8")
        .replace("parallel: {tp: 2, zero: 1}", "parallel: {tp: auto, pp: auto}")
    )
    recipe = str(write(tmp_path, text))
    assert cli("render", recipe, "--out", str(tmp_path / "bundle")).code == 0
    assert cli("render", recipe, "--out", str(tmp_path / "bundle"), "--check").code == 0
    assert cli("lock", recipe).code == 0
    assert cli("lock", recipe, "--check").code == 0
    plan = (tmp_path / "bundle" / "plan.json").read_text("utf-8")
    assert "the fastest layout that fits, by the cost model" in plan


def test_a_plan_for_a_cpu_counts_what_is_offloaded(cli: Cli, tmp_path: Path):
    shown = cli("plan", write(tmp_path), "offload.optimizer=cpu")
    assert "  offloaded: the optimizer's states; a CPU has no other memory to spare" in shown.out
    assert "not here" not in shown.out
