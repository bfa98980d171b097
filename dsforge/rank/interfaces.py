"""The networks of a host, and the address by which its ranks will be called.

`python -m dsforge.rank.interfaces CHOICE HOST` prints the interface that `cluster.interface` means here.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dsforge.records.probe import Announced, Interface

SOCKET_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""What chooses the interface of gloo, and of NCCL, which ranks on GPUs use too."""
_SIOCGIFFLAGS = 0x8913
_SIOCGIFADDR = 0x8915
_IS_UP = 0x1
_LINK_LOCAL = "20"
_IPV6 = Path("/proc/net/if_inet6")


def interfaces() -> tuple[Interface, ...]:
    """Return the interfaces that are up, in the kernel's order."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        for _, name in socket.if_nameindex():
            flags = _ask(handle, name, _SIOCGIFFLAGS)
            if flags is None or not struct.unpack_from("H", flags, 16)[0] & _IS_UP:
                continue
            address = _ask(handle, name, _SIOCGIFADDR)
            own = [socket.inet_ntoa(address[20:24])] if address is not None else []
            found.append(Interface(name, (*own, *_ipv6(name))))
    return tuple(found)


def _ask(handle: socket.socket, name: str, what: int) -> bytes | None:
    try:
        return fcntl.ioctl(handle.fileno(), what, struct.pack("256s", name.encode()[:15]))
    except OSError:
        return None


def _ipv6(name: str) -> list[str]:
    try:
        rows = [line.split() for line in _IPV6.read_text("ascii").splitlines()]
    except OSError:
        return []
    return [
        str(ipaddress.IPv6Address(bytes.fromhex(row[0])))
        for row in rows
        if row[5] == name and row[3] != _LINK_LOCAL
    ]


def announced(there: Sequence[Interface], environ: Mapping[str, str], *, gpus: bool) -> Announced:
    """Return what NCCL, or gloo on a machine without GPUs, will tell other ranks to connect to."""
    return _nccl(there, environ.get("NCCL_SOCKET_IFNAME")) if gpus else _gloo(there, environ)


def _gloo(there: Sequence[Interface], environ: Mapping[str, str]) -> Announced:
    """As torch's ProcessGroupGloo: every named interface must exist, else the host's own name decides.

    Where that name resolves to no address of this host, the loopback address is announced.
    """
    variable = "GLOO_SOCKET_IFNAME"
    value = environ.get(variable) or None
    if value is None:
        return Announced(variable, None, _usable_address(socket.gethostname()) or "127.0.0.1", ())
    named = value.split(",")
    addresses = {one.name: one.addresses for one in there}
    missing = tuple(name for name in named if not addresses.get(name))
    first = next((addresses[name][0] for name in named if addresses.get(name)), None)
    return Announced(variable, value, first, missing)


def _nccl(there: Sequence[Interface], value: str | None) -> Announced:
    """As NCCL's own choice: names are beginnings, `=` asks for whole names, `^` for all others.

    Without a value: InfiniBand's first, then all but Docker's and loopback, then Docker's, then loopback.
    """
    variable = "NCCL_SOCKET_IFNAME"
    with_address = [one for one in there if one.addresses]
    if value:
        excluding, exact = value.startswith("^"), value.lstrip("^").startswith("=")
        names = tuple(value.lstrip("^=").split(","))
        chosen = [one for one in with_address if _is_named(one.name, names, exact=exact) != excluding]
        missing = () if chosen else (names if not excluding else (value,))
        return Announced(variable, value, chosen[0].addresses[0] if chosen else None, missing)
    for wanted, unwanted in ((("ib",), ()), (("",), ("docker", "lo")), (("docker",), ()), (("lo",), ())):
        for one in with_address:
            if one.name.startswith(wanted) and not (unwanted and one.name.startswith(unwanted)):
                return Announced(variable, None, one.addresses[0], ())
    return Announced(variable, None, None, ())


def interface_variables(
    choice: str, masters: Sequence[str], there: Sequence[Interface], *, gpus: bool
) -> dict[str, str]:
    """Return what tells gloo, and NCCL where there are `gpus`, of the interface that a choice means here.

    `auto` is the one on the way to the first host, whose addresses are `masters`; else it is the first with
    an address in the network. Nothing where there is none: loopback leads to no other host.
    """
    if choice == "auto":
        name = route_to(masters[0], there) if masters else None
    else:
        network = ipaddress.ip_network(choice)
        inside = (one for one in there for own in one.addresses if ipaddress.ip_address(own) in network)
        name = next((one.name for one in inside), None)
    if name is None or name == "lo":
        return {}
    # NCCL takes what begins so, unless told that it is the whole name.
    return dict(zip(SOCKET_VARIABLES, (name, f"={name}") if gpus else (name,), strict=False))


def _is_named(name: str, names: Sequence[str], *, exact: bool) -> bool:
    return any(name == wanted if exact else name.startswith(wanted) for wanted in names)


def _usable_address(name: str) -> str | None:
    """Return the first address of a name that this host can listen at."""
    for address in addresses_of(name):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as handle:
            try:
                handle.bind((address, 0))
            except OSError:
                continue
        return address
    return None


def addresses_of(name: str) -> tuple[str, ...]:
    """Return the addresses that a name resolves to here, none where it does not."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(dict.fromkeys(str(row[4][0]) for row in found))


def main(arguments: list[str]) -> int:
    """Print the interface that a choice means here, on the way to a host; nothing where there is none."""
    choice, host = arguments
    found = interface_variables(choice, addresses_of(host), interfaces(), gpus=False)
    for name in found.values():
        sys.stdout.write(f"{name}\n")
    return 0


def route_to(address: str, there: Sequence[Interface]) -> str | None:
    """Return the interface by which this host reaches an address; None without a way."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as handle:
        try:
            handle.connect((address, 9))  # sends nothing: the kernel only chooses the way
        except OSError:
            return None
        own = handle.getsockname()[0]
    return next((one.name for one in there if own in one.addresses), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
