"""What a host says of itself where the recipe has it look for its interface."""

from __future__ import annotations

import pytest

from dsforge.rank.facts import host_facts
from dsforge.rank.interfaces import interfaces
from dsforge.records.probe import Question


def _announced(interface: str, **environ: str):
    return host_facts(Question(environ, False, "localhost", {}, (), "/ops", interface)).announced


def test_the_interface_that_is_found_is_announced_unless_the_recipe_names_another():
    there = next((one for one in interfaces() if one.addresses and one.name != "lo"), None)
    if there is None:
        pytest.skip("this machine has no network")
    found = _announced(f"{there.addresses[0]}/{128 if ':' in there.addresses[0] else 32}")
    assert (found.variable, found.value, found.missing) == ("GLOO_SOCKET_IFNAME", there.name, ())
    assert found.address == there.addresses[0]
    own = _announced(f"{there.addresses[0]}/32", GLOO_SOCKET_IFNAME="lo")
    assert (own.value, own.address) == ("lo", "127.0.0.1")


def test_what_is_looked_for_in_vain_is_missing():
    for choice in ("auto", "2001:db8:dead::/48"):  # the way to localhost is the loopback
        told = _announced(choice)
        assert (told.variable, told.address, told.missing) == ("cluster.interface", None, (choice,))


def test_a_host_says_why_nothing_can_be_offloaded_to_its_disk(tmp_path):
    told = {
        disk: host_facts(Question({}, False, "localhost", {}, (), "/ops", disk=disk)).disk_refused
        for disk in (str(tmp_path / "not" / "made"), "/proc/nope", None)
    }
    assert told == {
        str(tmp_path / "not" / "made"): None,
        "/proc/nope": "/proc cannot be written to (No such file or directory)",
        None: None,
    }
    assert list(tmp_path.iterdir()) == []
