"""Variables that follow from a recipe, each with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.plan.types import Plan
from tests.support.recipes import loaded, plan_of

GPUS = {"cluster": {"nodes": 2, "gpus_per_node": 4, "gpu": "a100-sxm-80gb", "hostfile": "hosts"}}


def _plan(*changes: dict[str, Any], **cluster: Any) -> Plan:
    return plan_of(GPUS, {"cluster": {**GPUS["cluster"], **cluster}}, *changes)


def test_ranks_on_gpus():
    assert _plan().launch.env == {
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "NCCL_DEBUG": "WARN",
        "OMP_NUM_THREADS": "1",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
    }
    without_tp = {"parallel": {"tp": 1, "pp": 2, "dp": 4}}
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in _plan(without_tp).launch.env


@pytest.mark.parametrize(
    ("cluster", "added"),
    [
        ({"interface": "ens3"}, {"GLOO_SOCKET_IFNAME": "ens3", "NCCL_SOCKET_IFNAME": "=ens3"}),
        ({"fabric": "infiniband"}, {"NCCL_NET": "IB"}),
        ({"fabric": "roce"}, {"NCCL_NET": "IB"}),
        ({"fabric": "ethernet"}, {"NCCL_IB_DISABLE": "1"}),
        ({"interface": "auto"}, {}),
        ({"interface": "10.0.0.0/16"}, {}),
    ],
)
def test_what_joins_the_hosts(cluster: dict[str, str], added: dict[str, str]):
    plan, before = _plan(**cluster), _plan()
    assert plan.launch.env == {**before.launch.env, **added}
    whys = {one.key: one.why for one in plan.decisions}
    assert all(whys[f"launch.env.{name}"] for name in added)


def test_the_users_own_value_wins_and_is_no_decision():
    plan = _plan({"launch": {"env": {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "12"}}})
    assert (plan.launch.env["NCCL_DEBUG"], plan.launch.env["OMP_NUM_THREADS"]) == ("INFO", "12")
    assert not {"launch.env.NCCL_DEBUG", "launch.env.OMP_NUM_THREADS"} & {one.key for one in plan.decisions}


def test_cores_that_slurm_has_for_a_rank_are_its_threads():
    slurm = {"launch": {"launcher": "slurm", "slurm": {"cpus_per_task": 12}}}
    plan = plan_of({"cluster": {"nodes": 2, "gpus_per_node": 4, "gpu": "a100-sxm-80gb"}}, slurm)
    assert plan.launch.env["OMP_NUM_THREADS"] == "12"


def test_an_interface_that_hosts_look_for_is_handed_to_them():
    plan = _plan(interface="auto")
    assert plan.launch.interface == "auto"
    (told,) = [one for one in plan.decisions if one.key == "launch.interface"]
    assert "GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME" in told.why
    assert _plan(interface="ens3").launch.interface is None
    assert (
        plan_of({"cluster": {"interface": "auto"}}).launch.interface is None
    )  # one host: there is no way to go


@pytest.mark.parametrize(
    "text", ["", "-x", "a b", "eth0,eth1", "10.0.0.1/16", "10.0.0.0/64", "a" * 16, "e;x"]
)
def test_other_interfaces_are_refused(text: str):
    with pytest.raises(DsforgeError) as caught:
        loaded({"cluster": {"interface": text}})
    assert caught.value.code == "DSF010"
