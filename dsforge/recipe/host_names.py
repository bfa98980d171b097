"""Names of hosts, one or a set at once: `node[01-04,07]`. What ssh, deepspeed and resolvers take alike."""

from __future__ import annotations

import ipaddress
import re
import socket
from itertools import product

from ClusterShell.RangeSet import RangeSet, RangeSetParseError

from dsforge.recipe.hinted import HintedError

MOST_HOSTS = 65_536
"""Beyond any cluster, so that a slip in a range does not fill the memory."""
MOST_SHOWN = 60
"""Characters of a name in a message."""
_LONGEST = 253
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBERS = re.compile(r"[0-9.]+")
_NUMERIC = re.compile(r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)(?:\.(?:0[xX][0-9A-Fa-f]*|[0-9]+))*")
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


class HostError(HintedError):
    """A text that names no hosts."""


def same(host: str) -> str:
    """Return what two spellings of one host share: a resolver does not tell `A` from `a`."""
    return host.lower()


def is_loopback(host: str) -> bool:
    """Whether a name means another machine on every host."""
    return same(host) in ("localhost", "localhost.localdomain") or host.startswith("127.")


def expand(text: str, most: int = MOST_HOSTS) -> list[str]:
    """Return the hosts of a name or a set of names, in the order they are written; HostError.

    Also for more than `most`.
    """
    if most < 1:
        raise _too_many(text)
    if any(mark in text for mark in "[]") and not _looks_like_ipv6(text):
        return _expand_set(text, most)
    check_name(text)
    return [text]


def split(text: str) -> list[str]:
    """Return the items of a list of names and sets, split at the commas outside brackets."""
    return re.split(r",(?![^\[\]]*\])", text)


def check_name(host: str) -> None:
    """Raise HostError unless a host of this name can be reached, filtered, and met at."""
    shown = host[:MOST_SHOWN]
    if _NUMBERS.fullmatch(host) and "." in host:
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise HostError(f"`{shown}` is no IPv4 address", "write the host's address or name") from None
    elif not _NAME.fullmatch(host) or len(host) > _LONGEST:
        raise HostError(f"`{shown}` is not a host name", _mend(host))
    elif (address := _address(host)) is not None:
        raise HostError(
            f"resolvers take `{shown}` for the address {address}",
            "write the host's address with dots, or its name",
        )


def _address(host: str) -> str | None:
    """Return the address that a number stands for, as in `2130706433` and `0x7f.1`; None for a name."""
    if not _NUMERIC.fullmatch(host):
        return None
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return None


def _mend(host: str) -> str:
    """Return the edit that makes a name of what is none."""
    user, at, rest = host.partition("@")
    if at and user and _NAME.fullmatch(rest):
        return f"write `{rest}`; the user belongs in ~/.ssh/config: `User {user}` under `Host {rest}`"
    if _looks_like_ipv6(host):
        return "deepspeed splits at `:`: give the address a name in /etc/hosts and write that"
    name, colon, port = host.partition(":")
    if colon and port.isdecimal() and _NAME.fullmatch(name):
        return f"write `{name}`; the port belongs in ~/.ssh/config: `Port {port}` under `Host {name}`"
    if "," in host:
        return "write one line a host"
    if host.startswith("-"):
        return "take the dash away: ssh would take the name for an option"
    return "letters, digits, dots, dashes; no leading dash"


def _looks_like_ipv6(text: str) -> bool:
    address, _, _ = text.removeprefix("[").partition("]")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return True


def _expand_set(text: str, most: int) -> list[str]:
    """Return names in Slurm's order: the last bracket counts fastest."""
    parts: list[list[str]] = []
    end, count = 0, 1
    for match in _PART.finditer(text):
        if match.start() != end:
            break
        end = match.end()
        parts.append([match[2]] if match[1] is None else _numbers(text, match[1]))
        count *= len(parts[-1])
        if count > most:
            raise _too_many(text)
    if end != len(text):
        raise HostError(f"the brackets of `{text[:MOST_SHOWN]}` do not close", "for example `node[01-04,07]`")
    names = ["".join(words) for words in product(*parts)]
    for name in names:
        check_name(name)
    return names


def _numbers(text: str, ranges: str) -> list[str]:
    found: list[str] = []
    for one in ranges.split(","):
        match = _RANGE.fullmatch(one)
        if not match:
            raise _no_range(text, one)
        if int(match[2] or match[1]) - int(match[1]) >= MOST_HOSTS:
            raise _too_many(text)
        try:
            found += RangeSet(one).striter()
        except RangeSetParseError:
            raise _no_range(text, one) from None
    return found


def _no_range(text: str, one: str) -> HostError:
    message = f"`{one[:MOST_SHOWN]}` in `{text[:MOST_SHOWN]}` is no range of numbers"
    return HostError(message, "write numbers of one width that rise: `node[01-04,07]`")


def _too_many(text: str) -> HostError:
    message = f"`{text[:MOST_SHOWN]}` makes it more than {MOST_HOSTS:,} hosts"
    return HostError(message, "write a smaller range")
