"""Answers of hosts beside the plan and the launching host: each fault with host, cause and mending."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from dsforge.base.errors import Finding, Severity
from dsforge.base.units import format_bytes
from dsforge.launch.talk import SilenceError
from dsforge.plan.memory import MemoryEstimate, memory_estimate
from dsforge.records.gpus import ChosenGpus
from dsforge.records.probe import Announced, FileMark, Folder, Gpu, Interface, Leftover, Listening, Question
from tests.launch_support.answers import (
    DATA,
    GPU,
    H100,
    RUNS,
    TOKEN,
    compared,
    facts,
    hosts,
    plan_on,
    told,
)

CASES = YAML(typ="safe").load((Path(__file__).parents[2] / "data" / "unreachable_hosts.yaml").read_text())


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, told(findings)
    return findings[0]


def test_hosts_that_are_well_are_not_blamed():
    assert compared(hosts(facts(), facts())) == []


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_silence_is_explained(case: dict[str, Any]):
    seen = hosts(facts(), None, silence=SilenceError(case["code"], case["words"]))
    found = only(compared(seen))
    code, message, hint = case["told"]
    assert found.place is not None
    assert (found.code, found.place.host) == (code, "node-2")
    assert found.message.startswith(message)
    assert hint in (found.hint or "")


def test_a_host_that_sent_too_much_is_not_called_slow():
    why = "it sends more than 1 MiB that is no answer"
    found = only(compared(hosts(facts(), None, silence=SilenceError(None, [why], why))))
    assert (found.code, found.message) == ("DSF255", why)
    assert found.hint == "`ssh -- node-2 true | head -c 1000` shows what its shell prints"


def test_one_host_under_two_names():
    found = only(compared(hosts(facts(machine="m"), facts(machine="m", host="node"))))
    assert (found.code, found.message) == (
        "DSF256",
        "node-1 and node-2 are one host, which calls itself node",
    )


def test_other_and_missing_packages_are_named_with_what_installs_them():
    versions = {"python": "3.11.7", "dsforge": "1", "deepspeed": "0.19.8"}
    found = compared(hosts(facts(), facts(versions=versions)))
    assert told(found) == [
        ("DSF257", "node-2", "it has deepspeed 0.19.8, this host has none"),
        ("DSF257", "node-2", "it has no torch, this host has 2.13.0"),
    ]
    assert found[1].hint == "there: `/venv/bin/python -m pip install 'torch==2.13.0'`"


def test_a_disk_that_a_host_cannot_write_to():
    found = only(compared(hosts(facts(), facts(disk_refused="/disk cannot be written to (Read-only)"))))
    assert (found.code, found.place.host) == ("DSF803", "node-2")
    assert found.message.endswith("its disk: /disk cannot be written to (Read-only)")


def test_fewer_gpus_than_slots():
    found = only(compared(hosts(facts(gpus=(GPU, GPU)), facts(gpus=(GPU,))), plan_on("h100-sxm-80gb")))
    assert (found.code, found.message) == ("DSF258", "it has 1 GPU, its slots promise 2")
    assert "slots=1" in (found.hint or "")


def test_chosen_gpus_that_a_host_does_not_have():
    there = hosts(facts(gpus=(GPU,) * 4), facts(gpus=(GPU,) * 4))
    chosen = ChosenGpus(((0, 3), (1, 6)))
    found = only(compared(there, plan_on("h100-sxm-80gb"), chosen=chosen))
    assert (found.code, found.place.host) == ("DSF258", "node-2")
    assert found.message == "the recipe chooses GPU 6, it has 4"


def test_a_fabric_that_ranks_are_told_to_use_is_there():
    there = hosts(facts(gpus=(GPU, GPU), has_fabric=True), facts(gpus=(GPU, GPU)))
    question = Question({"NCCL_NET": "IB"}, True, "node-1", {RUNS: "token"}, (DATA,), "/ops")
    found = only(compared(there, plan_on("h100-sxm-80gb"), question=question))
    assert (found.code, found.place.host) == ("DSF732", "node-2")


def test_an_interface_that_a_host_looks_for_in_vain():
    there = facts(announced=Announced("cluster.interface", "10.0.0.0/8", None, ("10.0.0.0/8",)))
    found = only(compared(hosts(facts(), there)))
    assert found.code == "DSF266"
    assert found.message.startswith("cluster.interface=10.0.0.0/8 names 10.0.0.0/8, which it does not have")
    assert found.hint == "name the interface, or a network in which every host has an address"


def test_gpus_that_cannot_be_counted_are_not_taken_for_none():
    there = facts(gpu_problem="nvidia-smi: Failed to initialize NVML")
    found = only(compared(hosts(facts(gpus=(GPU, GPU)), there), plan_on("h100-sxm-80gb")))
    assert found.message == "its GPUs cannot be counted: nvidia-smi: Failed to initialize NVML"


def test_gpus_of_another_type():
    a100 = replace(GPU, name="NVIDIA A100-SXM4-80GB")
    found = only(compared(hosts(facts(gpus=(GPU, GPU)), facts(gpus=(a100, a100))), plan_on("h100-sxm-80gb")))
    assert found.message == "it has NVIDIA A100-SXM4-80GB, the recipe has h100-sxm-80gb"
    assert (found.hint or "").startswith("set cluster.gpu=a100-sxm-80gb")


def test_gpus_in_use_ailing_or_with_another_driver_are_warned_of():
    sick = Gpu(H100, "535.10", 3, ("python (pid 7)",))
    there = facts(gpus=(sick,), xids=("NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.",))
    plan = plan_on("h100-sxm-80gb", gpus_per_node=1, nodes=3)
    found = compared(hosts(facts(gpus=(GPU,)), facts(gpus=(GPU,)), there), plan)
    assert {one.severity for one in found} == {Severity.WARNING}
    assert {one.place.host for one in found if one.place} == {"node-3"}
    assert [one.message.partition(":")[0] for one in found] == [
        "GPU 0 is in use",
        "GPU 0 has 3 uncorrected memory errors",
        "its kernel tells of GPU faults",
        "its driver is 535.10, most hosts have 550.54",
    ]


@pytest.mark.parametrize(
    ("folder", "code", "message"),
    [
        (Folder(RUNS, None, None, 10**13, 5), "DSF260", f"{RUNS} is another folder there"),
        (Folder(RUNS, "else", None, 10**13, 5), "DSF260", f"{RUNS} is another folder there"),
        (Folder(RUNS, None, "No such file or directory", 0, None), "DSF260", f"{RUNS} is not there"),
        (
            Folder(RUNS, TOKEN, "Read-only file system", 10**13, 5),
            "DSF261",
            f"{RUNS} cannot be written there",
        ),
        (
            Folder(RUNS, TOKEN, "No space left", 4096, 5),
            "DSF263",
            f"{RUNS} has 4.1 kB left, the run writes 1.0 GB",
        ),
        (Folder(RUNS, TOKEN, "No space left", 10**13, 0), "DSF263", f"{RUNS} has no more files"),
    ],
)
def test_folders_that_a_run_cannot_use(folder: Folder, code: str, message: str):
    found = only(compared(hosts(facts(), facts(folders=(folder,)))))
    assert found.code == code
    assert found.message.startswith(message)


def test_files_that_are_missing_or_differ():
    missing, other = FileMark(DATA, None, None), FileMark(DATA, 100, "bb")
    found = compared(hosts(facts(files=(other,)), facts(files=(missing,))))
    assert told(found) == [
        ("DSF262", "node-1", f"{DATA} is another file there (100 bytes there, 100 here)"),
        ("DSF262", "node-2", f"{DATA} cannot be read there"),
    ]


def test_a_file_that_this_host_lacks_too_is_somebody_elses_finding():
    lacking = facts(files=(FileMark(DATA, None, None),))
    assert compared(hosts(facts()), here=lacking) == []


def test_interfaces_that_differ_get_names_that_fit_all():
    """One NCCL_SOCKET_IFNAME for hosts whose interfaces have other names."""
    there = facts(
        gpus=(GPU, GPU),
        interfaces=(Interface("lo", ("127.0.0.1",)), Interface("eno1", ("192.0.2.11",))),
        announced=Announced("NCCL_SOCKET_IFNAME", "eth0", None, ("eth0",)),
        route="eno1",
    )
    found = only(compared(hosts(facts(gpus=(GPU, GPU)), there), plan_on("h100-sxm-80gb")))
    assert found.code == "DSF266"
    assert found.message == "NCCL_SOCKET_IFNAME=eth0 names eth0, which it does not have; it has lo, eno1"
    assert found.hint == "launch.env.NCCL_SOCKET_IFNAME=eno1,eth0"


def test_gloo_takes_no_list_of_names_that_some_hosts_lack():
    there = facts(announced=Announced("GLOO_SOCKET_IFNAME", "eth0", None, ("eth0",)), route="eno1")
    found = only(compared(hosts(facts(), there)))
    assert "take GLOO_SOCKET_IFNAME out of launch.env, and set cluster.interface=auto" in (found.hint or "")


def test_a_loopback_address_is_found_only_where_there_are_several_hosts():
    unset = facts(announced=Announced("GLOO_SOCKET_IFNAME", None, "127.0.1.1", ()))
    found = only(compared(hosts(facts(), unset)))
    assert found.code == "DSF267"
    assert "its own name node-1 leads to no other address" in found.message
    assert found.hint == "launch.env.GLOO_SOCKET_IFNAME=eth0"
    assert compared(hosts(unset)) == []


def test_a_master_whose_address_every_host_has():
    """The address of a container bridge: it leads a host to itself."""
    bridge = ("172.17.0.1",)
    interfaces = (*facts().interfaces, Interface("docker0", bridge))
    there = facts(master_addresses=bridge, interfaces=interfaces)
    found = only(compared(hosts(facts(), there, meeting_fault="connection refused")))
    assert found.code == "DSF269"
    assert found.message.endswith("connection refused; 172.17.0.1 is an address of its own, too")


def test_a_master_that_does_not_resolve_or_resolves_to_the_asking_host():
    found = compared(hosts(facts(), facts(master_addresses=()), meeting_fault="the name does not resolve"))
    assert only(found).message == "the name of the first host, node-1, does not resolve there"
    found = compared(hosts(facts(), facts(master_addresses=("127.0.1.1",)), meeting_fault="refused"))
    assert only(found).message == "node-1, the first host, leads to 127.0.1.1 there, which is itself"


def test_a_host_behind_a_firewall_is_not_reached_by_its_neighbour():
    found = only(compared(hosts(facts(), facts(), faults={"node-1": "no answer within 5 s"})))
    assert (found.code, found.place and found.place.host) == ("DSF268", "node-2")
    assert "does not reach 192.0.2.10, the address that ranks on node-1 would give" in found.message


def test_a_host_without_a_way_to_the_first_is_the_only_one_to_be_blamed():
    seen = hosts(facts(), facts(), facts(), meeting_fault="no route to host")
    seen[1].faults = {"node-3": "no answer within 5 s"}
    seen[2].faults = {"node-1": "no route to host"}
    found = only(compared(seen, plan_on(nodes=3)))
    assert (found.code, found.place and found.place.host) == ("DSF269", "node-3")


def test_a_port_that_is_in_use_is_asked_for_by_name():
    seen = hosts(facts(), facts())
    seen[0].listening = Listening(40_000, None, None)
    found = only(compared(seen, port=65_535))
    assert (found.code, found.place and found.place.host) == ("DSF270", "node-1")
    assert (found.hint or "").startswith("MASTER_PORT=65534, or unset it")
    assert only(compared(seen)).message == "none of the ports that were tried is free"


def test_a_clock_that_is_off_by_more_than_the_way_explains():
    assert compared(hosts(facts(), facts(), offset_seconds=-2.0, round_trip_seconds=2.0)) == []
    found = only(compared(hosts(facts(), facts(), offset_seconds=-90.0, round_trip_seconds=2.0)))
    assert found.message.startswith("its clock is 90.0 s behind this host's")


def test_processes_of_dead_runs_are_told_and_those_of_live_ones_are_not():
    live = Leftover("/r/a/attempt-1", "/r/a/lease", (5,), is_dead=False)
    dead = Leftover("/r/b/attempt-1", "/r/b/lease", (7, 8), is_dead=True)
    far = Leftover("/r/c/attempt-2", "/r/c/lease", (9,), is_dead=False)
    seen = hosts(facts(leftovers=(live, dead, far)))
    found = compared(seen, dead_leases=frozenset({"/r/c/lease"}))
    assert [one.message for one in found] == [
        "2 processes of a dead run are left: /r/b/attempt-1",
        "1 processes of a dead run are left: /r/c/attempt-2",
    ]
    assert found[0].hint == "`kill -9 7 8` there"


@pytest.mark.parametrize(
    ("memory", "free", "severity"), [(32, 32, None), (32, 31, "warning"), (31, 31, "error")]
)
def test_memory_for_the_states_of_all_ranks_of_a_host(memory: int, free: int, severity: str | None):
    there = facts(memory_bytes=memory * 10**9, available_bytes=free * 10**9)
    found = compared(hosts(there))
    assert [one.severity.value for one in found] == ([severity] if severity else [])
    assert [one.code for one in found] == (["DSF264"] if severity else [])


def test_memory_for_what_the_gpus_offload():
    there = facts(memory_bytes=10**9, available_bytes=10**9, gpus=(GPU, GPU))
    plan = plan_on("h100-sxm-80gb", nodes=1)
    assert compared(hosts(there), plan) == []
    train = plan.train.model_copy(update={"precision": "bf16"})
    offload = plan.offload.model_copy(update={"optimizer": "cpu"})
    plan = plan.model_copy(update={"train": train, "offload": offload})
    estimate = memory_estimate(plan)
    assert isinstance(estimate, MemoryEstimate)
    needed = estimate.fullest.host_bytes
    there = facts(memory_bytes=needed - 1, available_bytes=needed - 1, gpus=(GPU, GPU))
    found = only(compared(hosts(there), plan))
    assert (found.code, found.severity.value) == ("DSF264", "warning")
    assert f"take {format_bytes(needed)} of it" in found.message
    assert compared(hosts(replace(there, memory_bytes=needed)), plan) == []


def test_limits_and_shared_memory():
    small = facts(
        open_files=256, shm_bytes=2**26, has_fabric=True, locked_memory_bytes=2**16, gpus=(GPU, GPU)
    )
    found = compared(hosts(small), plan_on("h100-sxm-80gb", nodes=1))
    assert [(one.code, one.severity.value) for one in found] == [
        ("DSF264", "warning"),
        ("DSF271", "warning"),
        ("DSF271", "warning"),
    ]
    # Without GPUs only what every rank needs is asked for.
    assert [one.code for one in compared(hosts(small), plan_on(nodes=1))] == ["DSF271"]


def test_kernels_are_built_or_can_be():
    without = facts(compilers={"nvcc": False, "c++": True, "ninja": True})
    found = only(compared(hosts(without), needed_ops=("FusedAdam",)))
    assert found.message == "FusedAdam is not built, and it has no nvcc: PyTorch's own is used instead"
    built = replace(without, built_ops=("fused_adam",))
    assert compared(hosts(built), needed_ops=("FusedAdam",)) == []


def test_a_greeting_is_warned_of():
    found = only(compared(hosts(facts(), facts(), noise=("*** Welcome ***",))))
    assert (found.code, found.severity) == ("DSF274", Severity.WARNING)
    assert "'*** Welcome ***'" in found.message


def test_errors_come_before_warnings():
    there = facts(open_files=1, versions={})
    found = compared(hosts(facts(), there))
    assert [one.severity.value for one in found] == ["error"] * 3 + ["warning"]
