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

NO_ENTRY = "is not `HOST slots=N`"
NO_COUNT = "slots are a whole number above 0"


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
        ("node1 slots=4x\n", 1, f"`node1 slots=4x` {NO_ENTRY}: {NO_COUNT}"),
        ("node1 slots=-1\n", 1, "`node1 slots=-1` is not `HOST slots=N`"),
        ("node1\n", 1, "`node1` is not `HOST slots=N`"),
        ("node1 slots=4 max=8\n", 1, f"`node1 slots=4 max=8` {NO_ENTRY}: `max=8` stands behind the slots"),
        (f"node1 slots={'9' * 5000}\n", 1, f"`node1 slots={'9' * 88}` is not `HOST slots=N`"),
        ("node1 slots=0\n", 1, f"host `node1` has no slots: {NO_COUNT}"),
        ("node1 slots=1\n\nnode1 slots=1\n", 3, "host `node1` stands twice, first in line 1"),
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


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("node1 slots = 8", "write `node1 slots=8`"),
        ("node1 SLOTS=8", "write `node1 slots=8`"),
        ("node1 slots: 8", "write `node1 slots=8`"),
        ("node1 slots=8x", "write `node1 slots=8`"),
        ("node1 max_slots=16 slots=8", "write `node1 slots=8`"),
        ("node1 slots=8 max_slots=16", "write `node1 slots=8`"),
        ("node1", "write `node1 slots=N`, N the number of its GPUs"),
        ("node1 slots=99999999999999999999", "write `node1 slots=N`, N the number of its GPUs"),
        ("node1 slots=1048577", "write the number of its GPUs"),
        ("a,b slots=4", "write `a slots=4` and `b slots=4`"),
        ("a slots=4, b slots=2", "write `a slots=4` and `b slots=2`, one line a host"),
        ("a b slots=4", "write one line a host, the first of them `a slots=4`"),
        ("node1:8", "write `node1`; the port belongs in ~/.ssh/config: `Port 8` under `Host node1`"),
        ("a:22 slots=4", "write `a`; the port belongs in ~/.ssh/config: `Port 22` under `Host a`"),
        ("me@a slots=4", "write `a`; the user belongs in ~/.ssh/config: `User me` under `Host a`"),
        ("fe80::1 slots=4", "deepspeed splits at `:`: give the address a name in /etc/hosts and write that"),
        ("[::1] slots=4", "deepspeed splits at `:`: give the address a name in /etc/hosts and write that"),
        ("10.0.0.256 slots=4", "write the host's address or name"),
        ("-h slots=4", "take the dash away: ssh would take the name for an option"),
        ("n[1-2 slots=4", "for example `node[01-04,07]`"),
        ("n[08-100] slots=4", "write numbers of one width that rise: `node[01-04,07]`"),
        ("n[4-1] slots=4", "write numbers of one width that rise: `node[01-04,07]`"),
        ("n[1-99999999] slots=4", "write a smaller range"),
        ("n[1-300][1-300] slots=4", "write a smaller range"),
        ("localhost slots=4\nb slots=4", "write the name by which the other hosts reach it"),
        ("a slots=0", "remove it, or give it slots"),
    ],
)
def test_each_wrong_line_has_its_edit(line: str, hint: str):
    with pytest.raises(DsforgeError) as caught:
        parse_hostfile(f"# ours\n  {line}\n", "h")
    assert caught.value.hint == hint
    assert str(caught.value.place) == "h:2:3"


def test_every_fault_is_told_in_the_order_of_the_lines():
    text = "localhost slots=2\nnode[1-3] slots=2\nNODE2 slots=2\nn slots=x\n" + "bad\n" * 60
    with pytest.raises(DsforgeError) as caught:
        parse_hostfile(text, "h")
    found = [(fault.place.line, fault.message) for fault in caught.value.findings if fault.place]
    assert caught.value.message == "`localhost` is another machine on each of several hosts"
    assert found[:3] == [
        (3, "host `NODE2` stands twice, first in line 2"),
        (4, "`n slots=x` is not `HOST slots=N`"),
        (5, "`bad` is not `HOST slots=N`"),
    ]
    assert (len(found), found[-1][1]) == (51, "12 more lines are wrong")


def test_many_sets_are_not_more_hosts_than_one_may_be():
    text = "".join(f"{name}[1-30000] slots=1\n" for name in "abcd")
    with pytest.raises(DsforgeError, match=r"`c\[1-30000\]` makes it more than 65,536 hosts") as caught:
        parse_hostfile(text, "h")
    assert [fault.place.line for fault in caught.value.findings if fault.place] == [4]


def test_sets_of_names_become_their_hosts():
    text = "gpu-[08-10,12] slots=8\nrack[1-2]n[1-2] slots=4\n"
    names = ["gpu-08", "gpu-09", "gpu-10", "gpu-12", "rack1n1", "rack1n2", "rack2n1", "rack2n2"]
    assert list(parse_hostfile(text, "h").items()) == list(zip(names, [8] * 4 + [4] * 4, strict=True))


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
        ("node1 slots=4x\n", "DSF040", f"`node1 slots=4x` {NO_ENTRY}: {NO_COUNT}"),
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
    assert bundle.files["hostfile"] == "b slots=4\na slots=4\n"
    assert '  --master_addr "$dsforge_first"\n' in bundle.files["launch.sh"]


def test_nothing_is_rendered_where_nothing_says_how_nodes_are_reached(tmp_path: Path):
    path = write(tmp_path, TWO)
    assert make_plan(load_recipe(path)).launch.launcher is None
    with pytest.raises(DsforgeError) as caught:
        bundle_of(load_recipe(path))
    assert (caught.value.code, caught.value.exit_code) == ("DSF043", 1)
    assert bundle_of(load_recipe(path, ["launch.launcher=slurm"])).files.keys() >= {"launch.sh", "plan.json"}


SPARED = TWO.replace("gpu: cpu", "gpu: cpu, hostfile: h, spares: 1")
RESTARTED = "launch: {launcher: ssh, restarts: 1}\n"


def test_the_last_hosts_are_spares(tmp_path: Path):
    (tmp_path / "h").write_text("b slots=4\na slots=4\nc slots=4\n")
    _, bundle = plan_and_bundle(load_recipe(write(tmp_path, SPARED + RESTARTED)))
    assert (bundle.files["hostfile"], bundle.files["spares"]) == ("b slots=4\na slots=4\n", "c slots=4\n")


@pytest.mark.parametrize(
    ("hosts", "more", "code", "words"),
    [
        ("a b", "", "DSF041", "2 hosts, the recipe has cluster.nodes 2 and cluster.spares 1"),
        ("a b c d", "", "DSF041", "4 hosts, the recipe has cluster.nodes 2 and cluster.spares 1"),
        (
            "a b c d e",
            ", exclude: a",
            "DSF041",
            "cluster.exclude leaves 4 hosts, the recipe has cluster.nodes 2 and",
        ),
        ("a b c", ", exclude: 'a:0-1@b:0-1@c:0-1'", "DSF721", "cluster.spares stand for whole hosts"),
    ],
)
def test_spares_that_are_not_there_or_no_whole_hosts(
    tmp_path: Path, hosts: str, more: str, code: str, words: str
):
    slots = 6 if code == "DSF721" else 4
    (tmp_path / "h").write_text("".join(f"{host} slots={slots}\n" for host in hosts.split()))
    text = (SPARED + RESTARTED).replace("spares: 1", f"spares: 1{more}")
    with pytest.raises(DsforgeError) as caught:
        plan_and_bundle(load_recipe(write(tmp_path, text)))
    assert (caught.value.code, caught.value.message.startswith(words)) == (code, True), caught.value.message
