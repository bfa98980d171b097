"""What the scripts of Open MPI and MPICH take from a recipe."""

from __future__ import annotations

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.plan.resolve import make_plan
from dsforge.render.bundle import render
from dsforge.render.launchers import mpich
from dsforge.render.launchers.over_ssh import interface
from tests.support.recipes import loaded

NODES = {"cluster": {"nodes": 2, "gpus_per_node": 4, "hostfile": "hosts"}}


def _plan(launcher: str, **env: str):
    return make_plan(loaded(NODES, {"launch": {"launcher": launcher, "env": env}}))


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({}, None),
        ({"GLOO_SOCKET_IFNAME": "eth0"}, "eth0"),
        ({"NCCL_SOCKET_IFNAME": "=ib0"}, "ib0"),
        ({"NCCL_SOCKET_IFNAME": "ib"}, None),  # whatever begins with it
        ({"NCCL_SOCKET_IFNAME": "^docker0"}, None),
        ({"NCCL_SOCKET_IFNAME": "=ib0,ib1"}, None),
        ({"GLOO_SOCKET_IFNAME": "eth0; touch PWNED"}, None),
    ],
)
def test_the_interface_is_the_one_that_the_recipe_names_for_its_ranks(env: dict[str, str], name: str | None):
    assert interface(_plan("openmpi", **env)) == name


@pytest.mark.parametrize(
    ("launcher", "line"),
    [
        ("openmpi", "  export OMPI_MCA_oob_tcp_if_include=eth0\n"),
        ("mpich", 'export HYDRA_IFACE="${HYDRA_IFACE:-eth0}"\n'),
    ],
)
def test_the_launcher_is_told_of_it(launcher: str, line: str):
    hosts = ("h1 slots=4\nh2 slots=4\n", "hosts")
    named = render(_plan(launcher, GLOO_SOCKET_IFNAME="eth0"), hosts).files["launch.sh"]
    left_open = render(_plan(launcher), hosts).files["launch.sh"]
    assert line in named
    assert "eth0" not in left_open


def test_what_hosts_look_for_is_looked_for_here_too():
    hosts = ("h1 slots=4\nh2 slots=4\n", "hosts")

    def script(launcher: str, choice: str) -> str:
        cluster = {"cluster": {**NODES["cluster"], "interface": choice}}
        return render(make_plan(loaded(cluster, {"launch": {"launcher": launcher}})), hosts).files[
            "launch.sh"
        ]

    found = 'HYDRA_IFACE=$("$dsforge_python" -m dsforge.rank.interfaces auto "$MASTER_ADDR")'
    assert found in script("mpich", "auto")
    assert "OMPI_MCA_oob_tcp_if_include=10.0.0.0/16\n" in script("openmpi", "10.0.0.0/16")
    assert "if_include=" not in script("openmpi", "auto")
    assert "if_include=" not in script("openmpi", "2001:db8::/32")


def test_hosts_that_do_not_fit_into_one_argument_are_refused():
    plan = _plan("mpich")
    hosts = {f"node{number:05}": 4 for number in range(11_000)}  # 12 bytes each, of 131,071
    with pytest.raises(DsforgeError, match="132,000 bytes") as caught:
        mpich.files(plan, hosts)
    assert caught.value.code == "DSF091"
