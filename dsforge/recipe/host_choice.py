"""Which hosts and GPUs of a hostfile: deepspeed's syntax, `node1:0,2@node2`, with ranges of both."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

from dsforge.recipe import patterns
from dsforge.recipe.host_names import MOST_HOSTS, MOST_SHOWN, HostError, expand

_GPUS = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")


@dataclass(frozen=True, slots=True)
class Chosen:
    """One host that was named, and its GPUs; None: all of them."""

    host: str
    gpus: tuple[int, ...] | None


def parse_choice(text: str) -> tuple[Chosen, ...]:
    """Return the hosts that a text names, in its order; HostError.

    `HOSTS[:GPUS][@HOSTS[:GPUS]]...`, where HOSTS is a name or a set of names, GPUS are numbers and ranges.
    """
    found: list[Chosen] = []
    for one in text.split("@"):
        hosts, colon, gpus = one.partition(":")
        _check_commas(text, one, hosts)
        chosen = _gpus(one, gpus) if colon else None
        found += [Chosen(host, chosen) for host in expand(hosts, MOST_HOSTS - len(found))]
    return tuple(found)


def _check_commas(text: str, one: str, hosts: str) -> None:
    """A comma or a blank between hosts is the most common slip: tell what the text should be."""
    apart = re.split(r"[\s,]+(?=[A-Za-z_])(?![^\[\]]*\])", text)
    if len(apart) > 1 and (re.search(r"[\s,](?![^\[\]]*\])", hosts) or re.search(r"[\s,][A-Za-z_]", one)):
        hint = f"write `{'@'.join(map(_spelled_out, apart))}`"
        raise HostError(f"hosts in `{text[:MOST_SHOWN]}` are not parted by `@`", hint)
    if not hosts:
        raise HostError(f"`{text[:MOST_SHOWN]}` lacks a host's name", "for example `node1:0,2@node2`")


def _spelled_out(one: str) -> str:
    """Return a host with each of its GPUs, which deepspeed takes, too; as it stands where it has none."""
    hosts, colon, gpus = one.partition(":")
    try:
        return f"{hosts}:{','.join(map(str, _gpus(one, gpus)))}" if colon else one
    except HostError:
        return one


def _gpus(one: str, text: str) -> tuple[int, ...]:
    if not text:
        hint = "name them behind the colon: `node1:0,2` or `node1:0-3`; without a colon it is all of them"
        raise HostError(f"`{one[:MOST_SHOWN]}` names no GPU", hint)
    numbers: list[int] = []
    for part in text.split(","):
        match = _GPUS.fullmatch(part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            message = f"`{part[:MOST_SHOWN]}` in `{one[:MOST_SHOWN]}` is no GPU's number"
            raise HostError(message, "write numbers or ranges behind the colon: `node1:0,2` or `node1:0-3`")
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    if len(set(numbers)) != len(numbers):
        raise HostError(f"`{one[:MOST_SHOWN]}` names a GPU twice", "name each once")
    return tuple(sorted(numbers))


def _checked(text: str) -> str:
    parse_choice(text)
    return text


HostChoice = Annotated[
    str,
    Field(strict=True, min_length=1, max_length=100_000, pattern=patterns.HOST_CHOICE),
    AfterValidator(_checked),
]
"""Hosts and GPUs of a hostfile, as `parse_choice` reads them."""
