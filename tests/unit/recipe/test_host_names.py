"""A number is an address to every resolver, in whatever spelling."""

from __future__ import annotations

import pytest

from dsforge.recipe.host_names import HostError, expand


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("2130706433", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("0X7F.1", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("7", "0.0.0.7"),
    ],
)
def test_a_number_that_resolvers_take_for_an_address_is_no_name(host: str, address: str):
    with pytest.raises(HostError) as fault:
        expand(host)
    assert str(fault.value) == f"resolvers take `{host}` for the address {address}"
    assert fault.value.hint == "write the host's address with dots, or its name"


def test_the_same_of_a_set():
    with pytest.raises(HostError, match=r"for the address 0\.0\.0\.8"):
        expand("[8-9]")


@pytest.mark.parametrize("host", ["10.0.0.1", "0x7fg", "1a", "n1", "127.0.0.1.x", "99999999999"])
def test_other_names_stay(host: str):
    assert expand(host) == [host]
