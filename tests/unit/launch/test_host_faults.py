"""Faults on the way to several hosts: each with its line, its cause and the edit, none started over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from dsforge.base.errors import DsforgeError, Finding, Severity
from dsforge.foreign.env_file import check_env_file
from dsforge.launch.preflight import look
from dsforge.ops.bundles import bundle_of
from dsforge.ops.start import StartOptions, prepare
from dsforge.recipe.load import LoadedRecipe, load_recipe
from dsforge.render.hosts import parse_hostfile, render_hosts
from dsforge.render.hosts.jobs import from_slurm
from tests.support.recipes import ROOT, SMALL, write

CASES: list[dict[str, Any]] = YAML(typ="safe").load((ROOT / "tests/data/host_faults.yaml").read_text("utf-8"))


KINDS = ("recipe", "nodes", "environment", "hostfile")


def kind_of(case: dict[str, Any]) -> str:
    return next(kind for kind in KINDS if kind in case)


def of_kind(kind: str) -> Any:
    return pytest.mark.parametrize(
        "case", [case for case in CASES if kind_of(case) == kind], ids=lambda case: case["id"]
    )


def check_faults(found: list[Finding], faults: list[list[Any]]) -> None:
    assert [one.place.line for one in found if one.place] == [line for line, _, _ in faults]
    for one, (_, message, hint) in zip(found, faults, strict=True):
        assert message in one.message
        assert hint in (one.hint or "")
        assert one.severity is Severity.ERROR


def check_refusal(fault: DsforgeError, refused: list[str]) -> None:
    code, message, hint = refused
    assert fault.code == code, fault.message
    assert message in fault.message
    assert hint in (fault.hint or "")
    assert int(fault.exit_code) != 0


@of_kind("hostfile")
def test_a_hostfile(case: dict[str, Any]):
    if "hosts" in case:
        hosts = parse_hostfile(case["hostfile"], "hosts")
        assert list(hosts.items()) == list(case["hosts"].items())
        assert render_hosts(hosts) == case["written"]
        return
    with pytest.raises(DsforgeError) as caught:
        parse_hostfile(case["hostfile"], "hosts")
    first = Finding(
        caught.value.code, Severity.ERROR, caught.value.message, None, caught.value.place, caught.value.hint
    )
    check_faults([first, *caught.value.findings], case["faults"])


@of_kind("nodes")
def test_a_node_list_without_scontrol(case: dict[str, Any]):
    environ = {"SLURM_JOB_NODELIST": case["nodes"], "SLURM_GPUS_ON_NODE": "8"}
    if "hosts" in case:
        assert list(from_slurm(environ, None, None)[0].items()) == list(case["hosts"].items())
        return
    with pytest.raises(DsforgeError) as caught:
        from_slurm(environ, None, None)
    check_refusal(caught.value, case["refused"])


@of_kind("environment")
def test_an_environment_file(case: dict[str, Any]):
    check_faults(check_env_file(case["environment"], ".deepspeed_env"), case["faults"])


@of_kind("recipe")
def test_a_recipe_with_its_hosts(case: dict[str, Any], tmp_path: Path):
    if "refused" in case:
        with pytest.raises(DsforgeError) as caught:
            bundle_of(loaded(case, tmp_path))
        check_refusal(caught.value, case["refused"])
        return
    if "refused_to_start" in case:
        request = prepare(loaded(case, tmp_path), StartOptions(tmp_path / "runs", ("dsforge",), {}))
        check_refusal(look(request).refusals[0], case["refused_to_start"])
        return
    files = bundle_of(loaded(case, tmp_path)).files
    assert files["hostfile"] == render_hosts(case["hosts"])
    assert case.get("script", "") in files["launch.sh"]
    assert "--include" not in files["launch.sh"]  # nothing is left for the engine's own parser to choose


def loaded(case: dict[str, Any], folder: Path) -> LoadedRecipe:
    if "hostfile" in case:
        (folder / "hosts").write_text(case["hostfile"])
    nodes, gpus = case.get("nodes_planned", 2), case.get("gpus_per_node", 2)
    text = SMALL.replace(
        "nodes: 1, gpus_per_node: 8, gpu: cpu",
        f"nodes: {nodes}, gpus_per_node: {gpus}, gpu: cpu, hostfile: hosts",
    ).replace("parallel: {tp: 2, pp: 2, dp: 2, zero: 1}", "parallel: {tp: 1, zero: 1}")
    return load_recipe(write(folder, text), [*case["recipe"], f"batch.global={nodes * gpus * 2}"], None)
