"""What is handed on of hosts and GPUs, read by deepspeed's own functions, is the planned world or nothing."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsforge.base.errors import DsforgeError
from dsforge.foreign.hostfile import as_read
from dsforge.launch.fan_out import FanOut, Given
from dsforge.plan.types import Plan
from dsforge.rank.place import place_variables
from dsforge.recipe.host_names import HostError, expand
from dsforge.records.gpus import FILE_NAME, ChosenGpus, parse_chosen_gpus
from dsforge.render.bundle import render
from dsforge.render.hosts import Hosts, World, parse_hostfile, planned_world, render_hosts
from tests.support.recipes import plan_of

HOSTS = ("a", "b1", "node-1", "node1", "Node2", "n_3", "10.0.0.1", "x.y.z")
_LINES = st.sampled_from(
    [
        *(f"{host} slots={count}" for host in (*HOSTS, "A", "b[1-2]", "node-[1-3]") for count in (1, 4)),
        *("", "# c", "a slots=2 # c", "  a\tslots=3 ", "a slots=4\r", "\ufeffa slots=1", "a  slots=08"),
        *(
            "a",
            "a slots = 4",
            "a SLOTS=4",
            "a slots=4x",
            "a slots=",
            "a slots=0",
            "a,b slots=1",
            "-a slots=1",
        ),
        *("a slots=4 b slots=4", "a:1 slots=2", "me@a slots=2", "::1 slots=2", "a slots=4#c", "a\x0bslots=1"),
        *(
            "a slots=٣",
            "ü slots=1",
            "a slots=1\x85b slots=2",
            "a slots=1\u2028",
            "[1-2] slots=1",
            "#a slots=1",
        ),
    ]
)


def _engine_reads(text: str, folder: Path) -> dict[str, int] | None:
    from deepspeed.launcher.runner import fetch_hostfile

    path = folder / "hostfile"
    path.write_bytes(text.encode())
    try:
        return dict(fetch_hostfile(str(path)))
    except ValueError:
        return None


@given(st.lists(_LINES, max_size=5).map("\n".join))
def test_what_is_taken_is_what_the_engine_is_told(tmp_path_factory: pytest.TempPathFactory, text: str):
    folder = tmp_path_factory.mktemp("hosts")
    with contextlib.suppress(DsforgeError):
        hosts = parse_hostfile(text, "h")
        assert list((_engine_reads(render_hosts(hosts), folder) or {}).items()) == list(hosts.items())
        if not re.search(r"[\[\ufeff]", text):
            assert _engine_reads(text, folder) == hosts, "taken otherwise than the engine takes the very file"


@given(st.lists(_LINES, max_size=5).map("\n".join))
def test_what_the_engine_would_read_is_told(tmp_path_factory: pytest.TempPathFactory, text: str):
    assert as_read(text) == _engine_reads(text, tmp_path_factory.mktemp("hosts"))


_NUMBERS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(1, 3)).map(
        lambda drawn: f"{drawn[0]:0{drawn[2]}}-{drawn[0] + drawn[1]:0{drawn[2]}}"
    ),
    min_size=1,
    max_size=3,
).map(lambda ranges: f"[{','.join(ranges)}]")


@given(
    st.lists(st.tuples(st.sampled_from(["n", "rack-", "x.y"]), _NUMBERS).map("".join), max_size=3).map(
        "".join
    )
)
def test_a_set_of_names_is_clustershells(text: str):
    from ClusterShell.NodeSet import NodeSet, NodeSetParseError

    name = f"{text}e"  # a name ends with a letter or a digit
    try:
        names = expand(name)
    except HostError:
        with pytest.raises(NodeSetParseError):
            NodeSet(name)
        return
    assert sorted(set(names)) == sorted(NodeSet(name))


def _chosen(hosts: Hosts) -> st.SearchStrategy[str]:
    """A choice in deepspeed's own syntax, of hosts and GPUs that may not be there."""
    gpus = st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True)
    part = st.none() | gpus.map(lambda numbers: ",".join(map(str, numbers)))
    names = st.lists(st.sampled_from([*hosts, "stranger"]), min_size=1, max_size=4, unique=True)
    return st.tuples(names, st.lists(part, min_size=4, max_size=4)).map(
        lambda drawn: "@".join(
            name if numbers is None else f"{name}:{numbers}"
            for name, numbers in zip(drawn[0], drawn[1], strict=False)
        )
    )


def _plan(nodes: int, gpus_per_node: int, **choice: str) -> Plan:
    layout = PLAN.layout.model_copy(update={"nodes": nodes, "gpus_per_node": gpus_per_node})
    return PLAN.model_copy(update={"layout": layout, **choice})


PLAN = plan_of({"cluster": {"gpu": "a100-sxm-80gb"}})


def _no_place(_key: str) -> None:
    return None


def _handed_on(world: World, folder: Path) -> dict[str, list[int]]:
    """Return what deepspeed's runner makes of the rendered hostfile, and each rank's wrapper of that."""
    counted = _engine_reads(render_hosts(world.hosts), folder)
    assert counted is not None
    if world.gpus is None:
        return {host: list(range(count)) for host, count in counted.items()}
    plan = folder / "plan.json"
    plan.write_text('{"launch": {}}')
    (folder / FILE_NAME).write_text(ChosenGpus(tuple(world.gpus.values())).to_json())
    seen: dict[str, list[int]] = {}
    for node, (host, count) in enumerate(counted.items()):
        devices = place_variables(plan, node, {})["CUDA_VISIBLE_DEVICES"].split(",")
        seen[host] = [int(devices[local_rank]) for local_rank in range(count)]
    return seen


@given(st.data())
def test_a_choice_is_deepspeeds_own_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    from deepspeed.launcher.runner import parse_inclusion_exclusion

    counts = st.integers(1, 4)
    hosts = data.draw(st.dictionaries(st.sampled_from(HOSTS), counts, min_size=1, max_size=5))
    key, text = data.draw(st.sampled_from(["include", "exclude"])), data.draw(_chosen(hosts))
    words = {"include": "", "exclude": "", key: text}
    wanted: dict[str, list[int]] | None
    try:
        wanted = {
            host: sorted(gpus) for host, gpus in parse_inclusion_exclusion(hosts, *words.values()).items()
        }
    except ValueError:
        wanted = None
    shape = (len(wanted), len(next(iter(wanted.values())))) if wanted else (1, 1)
    uniform = wanted and all(len(gpus) == shape[1] for gpus in wanted.values())
    plan = _plan(*shape, **{key: text})
    if not uniform:
        with pytest.raises(DsforgeError) as caught:
            planned_world(hosts, plan, "h", _no_place)
        assert caught.value.code == ("DSF090" if wanted is None else "DSF041")
        return
    assert wanted is not None
    world = planned_world(hosts, plan, "h", _no_place)
    folder = tmp_path_factory.mktemp("choice")
    assert list(_handed_on(world, folder).items()) == list(wanted.items())
    fan_out = FanOut(world.hosts, Given(folder / "hostfile", "1", ()), {}, "/")
    (info,) = [word for word in fan_out.job(0, "h").argv if word.startswith("--world_info=")]
    world_info = json.loads(base64.urlsafe_b64decode(info.partition("=")[2]))
    assert [len(gpus) for gpus in world_info.values()] == [len(gpus) for gpus in wanted.values()]


def _recipe(**cluster: Any) -> dict[str, Any]:
    gpus = {"nodes": 2, "gpus_per_node": 4, "gpu": "a100-sxm-80gb", "hostfile": "hosts"}
    return {"cluster": {**gpus, **cluster}}


@pytest.mark.parametrize(
    ("choice", "lines", "told"),
    [
        ({"include": "n[1-2]"}, "n1 slots=4\nn2 slots=4\n", None),
        ({"exclude": "N[3-4]@m"}, "n1 slots=4\nn2 slots=4\n", None),
        ({"include": "n[1-4]", "exclude": "n2@n4:0-3"}, "n1 slots=4\nn3 slots=4\n", None),
        ({"include": "m:1-4@n2"}, "n2 slots=4\nm slots=4\n", ((0, 1, 2, 3), (1, 2, 3, 4))),
        (
            {"include": "m@n1", "exclude": "m:0-1,3,7"},
            "n1 slots=4\nm slots=4\n",
            ((0, 1, 2, 3), (2, 4, 5, 6)),
        ),
    ],
)
@pytest.mark.parametrize("launcher", ["ssh", "pdsh", "torchrun", "openmpi", "mpich"])
def test_a_choice_in_the_bundle(launcher: str, choice: dict[str, str], lines: str, told: Any):
    plan = plan_of(_recipe(**choice), {"launch": {"launcher": launcher}})
    bundle = render(plan, ("n[1-4] slots=4\nm slots=8\n", "hosts"))
    assert bundle.files["hostfile"] == lines
    file = bundle.files.get(FILE_NAME)
    assert (file and parse_chosen_gpus(file).by_node) == told


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ([_recipe(include="n9")], "DSF090", "cluster.include names host `n9`, which hosts does not"),
        (
            [_recipe(include="n1:4@n2")],
            "DSF090",
            "cluster.include names GPU 4 of `n1`, which has slots 0 to 3",
        ),
        (
            [_recipe(include="n1:0-9999")],
            "DSF090",
            "cluster.include names GPUs 4-9999 of `n1`, which has slots 0 to 3",
        ),
        ([_recipe(exclude="n1@N1")], "DSF090", "cluster.exclude names host `n1` twice"),
        ([_recipe(exclude="n1")], "DSF041", "cluster.exclude leaves 4 hosts, the recipe has cluster.nodes 2"),
        ([_recipe(exclude="n[1-4]@m")], "DSF041", "leaves 0 hosts"),
        (
            [_recipe(include="n1@m")],
            "DSF041",
            "leaves 8 GPUs of host `m`, the recipe has cluster.gpus_per_node 4",
        ),
        (
            [_recipe(include="n1@m:0-3", gpu="cpu")],
            "DSF091",
            "cluster.gpu is cpu: there are no GPUs to choose",
        ),
    ],
)
def test_a_choice_that_is_not_the_planned_world(changes: list[dict[str, Any]], code: str, message: str):
    with pytest.raises(DsforgeError) as caught:
        render(plan_of(*changes), ("n[1-4] slots=4\nm slots=8\n", "hosts"))
    assert caught.value.code == code
    assert message in caught.value.message
    assert caught.value.hint


def test_names_that_leave_no_room_are_refused():
    name = "x" * 50 + "." + "y" * 60
    hosts = f"{name}[001-800] slots=8\n"
    cluster = _recipe(nodes=800, gpus_per_node=8)
    batch = {"batch": {"global": 6400}, "parallel": {"dp": "auto"}}
    assert len(render(plan_of(cluster, batch, {"launch": {"launcher": "ssh"}}), (hosts, "h")).files) > 1
    with pytest.raises(DsforgeError, match="bytes of an argument that has room for") as caught:
        render(plan_of(cluster, batch, {"launch": {"launcher": "pdsh"}}), (hosts, "h"))
    assert caught.value.code == "DSF091"
