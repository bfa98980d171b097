"""Whether one host reaches another: through real sockets of this one."""

from __future__ import annotations

import socket

from dsforge.rank.meeting import listen, reach
from dsforge.records.probe import Listen, Target


def test_whoever_listens_is_reached_and_known_by_its_word():
    listening = listen(Listen("127.0.0.1", (), "right"))
    assert listening.port is not None
    right = Target("127.0.0.1", listening.port, "right")
    wrong = Target("127.0.0.1", listening.port, "wrong")
    assert reach((right, wrong, right), 5.0) == (None, "another program answers there", None)


def test_the_first_free_port_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        assert listen(Listen(None, (taken,), "word")).meeting_port is None
        free = listen(Listen(None, (taken, 0), "word")).meeting_port
    assert free not in (None, taken)


def test_why_a_target_is_not_reached():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    faults = reach((Target("127.0.0.1", port, "x"), Target("nowhere.invalid", port, "x")), 5.0)
    assert faults[0] == "connection refused"
    assert (faults[1] or "").startswith("the name does not resolve: ")


def test_an_address_of_another_host_cannot_be_listened_at():
    refused = listen(Listen("192.0.2.99", (), "word"))
    assert (refused.port, refused.refused) == (None, "Cannot assign requested address")
