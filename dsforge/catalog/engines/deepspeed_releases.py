"""What releases of DeepSpeed before the catalogue's take: its table, with what came since taken out again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from itertools import chain, pairwise
from typing import Any

from ruamel.yaml import YAML

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.catalog.engines.deepspeed import Coming, DeepSpeedKeys, Key, Section, known_keys

_RELEASE = re.compile(r"(\d{1,6}(?:\.\d{1,6}){1,3})[+.-]?[a-z0-9.]{0,40}")
Release = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Releases:
    """The file's rows: releases by dotted key, and `before` those of a default and that default."""

    read: tuple[str, ...]
    since: Mapping[str, str]
    last: Mapping[str, str]
    checked: Mapping[str, str]
    before: Mapping[str, Mapping[str, Any]]

    def without(self, release: str) -> str:
        """Return the newest release that was read before one."""
        return next(old for old, new in pairwise(self.read) if new == release)


@cache
def releases() -> Releases:
    """Return what is known of older releases."""
    file = resources.files("dsforge.catalog.engines") / "deepspeed-releases.yaml"
    table: dict[str, Any] = YAML(typ="safe", pure=True).load(file.read_text("utf-8"))
    read = tuple(chain.from_iterable(table.pop("read")))
    return Releases(read=read, **table)


def parsed(text: str) -> Release:
    """Return a version's numbers, without what a build adds behind them; DsforgeError DSF619."""
    match = _RELEASE.fullmatch(text)
    if match is None:
        raise _unknown(f"`{text[:40]}` is no version of DeepSpeed")
    return tuple(int(part) for part in match[1].split("."))


def is_known(version: str) -> bool:
    """Tell whether a version lies between the oldest release that was read and the catalogue's."""
    read = releases().read
    return parsed(read[0]) <= parsed(version) <= parsed(read[-1])


def keys_at(version: str) -> DeepSpeedKeys:
    """Return what a release takes; DsforgeError DSF619 for one that is not known here.

    Of a release between two that were read, a key that the later one has first counts as not there.
    """
    known, at = releases(), parsed(version)
    if not is_known(version):
        raise _unknown(f"what DeepSpeed {version} takes is not known here")
    keys = known_keys()
    if at == parsed(keys.version):
        return keys
    coming = {
        key: Coming(known.without(first), first) for key, first in known.since.items() if parsed(first) > at
    }
    taken = {key for key, last in known.last.items() if parsed(last) >= at} - coming.keys()
    defaults = {key: row["default"] for key, row in known.before.items() if at < parsed(row["release"])}
    unchecked = {key for key, first in known.checked.items() if at < parsed(first)}
    top = _older(keys.top, "", taken, defaults, unchecked)
    return replace(keys, version=version, top=top, removed=keys.removed - taken, coming=coming)


def _older(
    section: Section, at: str, taken: set[str], defaults: Mapping[str, Any], unchecked: set[str]
) -> Section:
    return replace(
        section,
        keys=dict(_keys(section, at, taken, defaults, unchecked)),
        checked=section.checked and at.rstrip(".") not in unchecked,
    )


def _keys(
    section: Section, at: str, taken: set[str], defaults: Mapping[str, Any], unchecked: set[str]
) -> Iterator[tuple[str, Key]]:
    for name, key in section.keys.items():
        dotted = at + name
        if key.section is not None:
            inner = _older(key.section, f"{dotted}.", taken, defaults, unchecked)
            yield name, replace(key, section=inner)
        else:
            yield name, replace(key, default=defaults.get(dotted, key.default))
    for dotted in taken:
        where, _, name = dotted.rpartition(".")
        if where == at.rstrip("."):
            yield name, Key()


def _unknown(problem: str) -> DsforgeError:
    read = releases().read
    hint = f"a version from {read[0]} to {read[-1]}, or `--probe`, which asks the installed one"
    return DsforgeError("DSF619", problem, hint=hint, exit_code=ExitCode.USAGE)
