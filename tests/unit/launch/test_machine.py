from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.launch import machine


def test_the_launcher_is_the_one_beside_this_python(monkeypatch, tmp_path):
    assert machine.find_deepspeed() == Path(sys.executable).parent / "deepspeed"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(DsforgeError, match="not installed beside") as caught:
        machine.find_deepspeed()
    assert caught.value.exit_code == 3


def test_every_missing_secret_is_named_and_none_shown():
    machine.check_secrets(("A",), {"A": ""})
    with pytest.raises(DsforgeError) as caught:
        machine.check_secrets(("A", "B", "C"), {"B": "hush"})
    assert "A, C" in caught.value.message
    assert "hush" not in caught.value.message


def test_the_callers_port_is_used_where_it_is_free():
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        other, why = machine.rendezvous_port({"MASTER_PORT": str(port)})
        assert other != port
        assert why == f"MASTER_PORT={port} is in use: the ranks meet at port {other} instead"
    assert machine.rendezvous_port({"MASTER_PORT": str(port)}) == (port, None)
    assert machine.rendezvous_port({})[1] is None
    assert machine.rendezvous_port({"MASTER_PORT": ""})[1] is None


def test_whether_a_port_is_free_here_says_nothing_of_another_host():
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert machine.rendezvous_port({"MASTER_PORT": str(port)}, here=False) == (port, None)
    chosen, why = machine.rendezvous_port({}, here=False)
    assert 20_000 <= chosen < 32_000
    assert why is None


@pytest.mark.parametrize("wrong", ["0", "65536", "-1", "http", "99999999999"])
def test_what_is_no_port_is_said(wrong):
    port, why = machine.rendezvous_port({"MASTER_PORT": wrong})
    assert why == f"MASTER_PORT={wrong} is not a port: the ranks meet at port {port} instead"


def test_a_free_port_is_free():
    port = machine.free_port()
    assert 20_000 <= port <= 32_000
    with socket.socket() as probe:
        probe.bind(("", port))
