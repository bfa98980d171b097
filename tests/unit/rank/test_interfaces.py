"""The address that a host's ranks will give to the others, as gloo and NCCL choose it."""

from __future__ import annotations

import socket

import pytest

from dsforge.rank.interfaces import (
    addresses_of,
    announced,
    interface_variables,
    interfaces,
    route_to,
)
from dsforge.records.probe import Interface

THERE = (
    Interface("lo", ("127.0.0.1",)),
    Interface("docker0", ("172.17.0.1",)),
    Interface("eth0", ("192.0.2.10", "2001:db8::1")),
    Interface("eth1", ("198.51.100.1",)),
    Interface("eno1", ()),
)


def test_the_loopback_interface_is_found_with_its_address():
    assert [one.addresses[0] for one in interfaces() if one.name == "lo"] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("value", "address", "missing"),
    [
        ("eth0", "192.0.2.10", ()),
        ("eth1,eth0", "198.51.100.1", ()),
        ("eth0,eth7", "192.0.2.10", ("eth7",)),
        ("eno1", None, ("eno1",)),
        ("eth", None, ("eth",)),
    ],
)
def test_gloo_wants_whole_names_and_all_of_them(value: str, address: str | None, missing: tuple[str, ...]):
    chosen = announced(THERE, {"GLOO_SOCKET_IFNAME": value}, gpus=False)
    assert (chosen.variable, chosen.value) == ("GLOO_SOCKET_IFNAME", value)
    assert (chosen.address, chosen.missing) == (address, missing)


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("eth", "192.0.2.10"),
        ("eth1", "198.51.100.1"),
        ("=eth1", "198.51.100.1"),
        ("=eth", None),
        ("^docker,lo,eth0", "198.51.100.1"),
        ("^=lo", "172.17.0.1"),
        ("ib,eth1", "198.51.100.1"),
        ("ib", None),
    ],
)
def test_nccl_takes_beginnings_whole_names_and_exclusions(value: str, address: str | None):
    assert announced(THERE, {"NCCL_SOCKET_IFNAME": value}, gpus=True).address == address


def test_nccl_left_alone_prefers_infiniband_and_takes_loopback_last():
    assert announced(THERE, {}, gpus=True).address == "192.0.2.10"
    assert announced((*THERE, Interface("ib0", ("203.0.113.9",))), {}, gpus=True).address == "203.0.113.9"
    assert announced(THERE[:2], {}, gpus=True).address == "172.17.0.1"
    assert announced(THERE[:1], {}, gpus=True).address == "127.0.0.1"


def test_gloo_left_alone_goes_by_the_hosts_own_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "127.0.0.7")
    assert announced(THERE, {}, gpus=False).address == "127.0.0.7"
    # A name that leads nowhere, or to another host, leaves gloo with the loopback address.
    for name in ("nowhere.invalid", "192.0.2.99"):
        monkeypatch.setattr(socket, "gethostname", lambda name=name: name)
        assert announced(THERE, {}, gpus=False).address == "127.0.0.1"


def test_names_and_routes():
    assert addresses_of("nowhere.invalid") == ()
    assert addresses_of("127.0.0.1") == ("127.0.0.1",)
    assert route_to("127.0.0.1", THERE) == "lo"


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ("192.0.2.0/24", "eth0"),
        ("198.51.0.0/16", "eth1"),
        ("2001:db8::/32", "eth0"),
        ("203.0.113.0/24", None),
        ("127.0.0.0/8", None),
    ],
)
def test_a_network_names_the_interface_with_an_address_in_it(choice: str, name: str | None):
    gloo = {} if name is None else {"GLOO_SOCKET_IFNAME": name}
    assert interface_variables(choice, (), THERE, gpus=False) == gloo
    both = {} if name is None else {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}"}
    assert interface_variables(choice, (), THERE, gpus=True) == both


def test_auto_is_the_way_to_the_first_host_and_never_the_loopback():
    assert interface_variables("auto", ("127.0.0.1",), interfaces(), gpus=False) == {}
    assert interface_variables("auto", (), interfaces(), gpus=False) == {}
