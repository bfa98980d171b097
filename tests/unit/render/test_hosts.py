"""Hostfiles are read strictly and written as DeepSpeed's own parser reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.ops.bundles import bundle_of, plan_and_bundle
from dsforge.plan.resolve import make_plan
from dsforge.recipe.load import load_recipe
from dsforge.render.bundle import render
from dsforge.render.hosts import parse_hostfile, render_hosts
from tests.support.recipes import SMALL, plan_of, write


def test_hosts_in_order_without_comments():
    text = "\ufeff# cluster\nnode2 slots=4\n\nnode1.example  slots=8 # fast\r\n10.0.0.1 slots=1\n"
    assert list(parse_hostfile(text, "h").items()) == [("node2", 4), ("node1.example", 8), ("10.0.0.1", 1)]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("node1 slots=4\n-oProxyCommand=id slots=4\n", 2, "`-oProxyCommand=id` is not a host name"),
        ("-node slots=4\n", 1, "`-node` is not a host name"),
        ("node- slots=4\n", 1, "`node-` is not a host name"),
        ("a;id slots=4\n", 1, "`a;id` is not a host name"),
        ("$(id) slots=4\n", 1, "`$(id)` is not a host name"),
        ("user@node slots=4\n", 1, "`user@node` is not a host name"),
        ("node1 slots=4x\n", 1, "`node1 slots=4x` is not `HOST slots=N`"),
        ("node1 slots=-1\n", 1, "`node1 slots=-1` is not `HOST slots=N`"),
        ("node1\n", 1, "`node1` is not `HOST slots=N`"),
        ("node1 slots=4 max=8\n", 1, "`node1 slots=4 max=8` is not `HOST slots=N`"),
        (f"node1 slots={'9' * 5000}\n", 1, f"`node1 slots={'9' * 88}` is not `HOST slots=N`"),
        ("node1 slots=0\n", 1, "host `node1` has no slots"),
        ("node1 slots=1\n\nnode1 slots=1\n", 3, "host `node1` stands twice"),
        ("# nobody\n", None, "names no host"),
        ("", None, "names no host"),
    ],
)
def test_a_wrong_line_is_named(text: str, line: int | None, message: str):
    with pytest.raises(DsforgeError) as caught:
        parse_hostfile(text, "hosts.txt")
    fault = caught.value
    assert (fault.code, fault.message) == ("DSF040", message)
    assert fault.hint
    assert fault.place is not None
    assert (fault.place.file, fault.place.line) == ("hosts.txt", line)


def test_deepspeeds_own_parser_reads_the_planned_world(tmp_path: Path):
    from deepspeed.launcher.runner import fetch_hostfile

    path = tmp_path / "hostfile"
    path.write_text(render(plan_of()).files["hostfile"])
    assert dict(fetch_hostfile(str(path))) == {"localhost": 8}
    path.write_text(render_hosts({"node-1.example": 8, "10.0.0.1": 8}))
    assert list(fetch_hostfile(str(path)).items()) == [("node-1.example", 8), ("10.0.0.1", 8)]


def _with_hostfile(folder: Path, text: str | None) -> Path:
    if text is not None:
        (folder / "hosts.txt").write_text(text)
    return write(folder, SMALL.replace("gpu: cpu", "gpu: cpu, hostfile: hosts.txt"))


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("node1 slots=8\nnode2 slots=8\n", "DSF041", "2 hosts, the recipe has cluster.nodes 1"),
        ("node1 slots=4\n", "DSF041", "4 slots, the recipe has cluster.gpus_per_node 8"),
        ("node1 slots=4x\n", "DSF040", "`node1 slots=4x` is not `HOST slots=N`"),
        (None, "DSF044", "No such file or directory"),
    ],
)
def test_a_hostfile_must_be_the_planned_world(tmp_path: Path, text: str | None, code: str, message: str):
    with pytest.raises(DsforgeError) as caught:
        bundle_of(load_recipe(_with_hostfile(tmp_path, text)))
    assert caught.value.code == code
    assert message in caught.value.message
    assert caught.value.hint
    assert caught.value.place is not None


def test_the_named_hostfile_is_rendered(tmp_path: Path):
    bundle = bundle_of(load_recipe(_with_hostfile(tmp_path, "node1   slots=8 # one\n")))
    assert bundle.files["hostfile"] == "node1 slots=8\n"


TWO = SMALL.replace("nodes: 1, gpus_per_node: 8", "nodes: 2, gpus_per_node: 4")


def test_auto_takes_pdsh_where_a_hostfile_is_named(tmp_path: Path):
    (tmp_path / "hosts.txt").write_text("b slots=4\na slots=4\n")
    path = write(tmp_path, TWO.replace("gpu: cpu", "gpu: cpu, hostfile: hosts.txt"))
    plan, bundle = plan_and_bundle(load_recipe(path))
    assert plan.launch.launcher == "pdsh"
    assert "  --master_addr b \\\n" in bundle.files["launch.sh"]


def test_nothing_is_rendered_where_nothing_says_how_nodes_are_reached(tmp_path: Path):
    path = write(tmp_path, TWO)
    assert make_plan(load_recipe(path)).launch.launcher is None
    with pytest.raises(DsforgeError) as caught:
        bundle_of(load_recipe(path))
    assert (caught.value.code, caught.value.exit_code) == ("DSF043", 1)
    assert bundle_of(load_recipe(path, ["launch.launcher=slurm"])).files.keys() >= {"launch.sh", "plan.json"}
