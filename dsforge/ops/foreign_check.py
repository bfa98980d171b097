"""`validate` for the files of other tools: what the engine would really do with them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from dsforge.base.canonical import loads
from dsforge.base.errors import DsforgeError, Finding, Severity
from dsforge.base.exits import ExitCode
from dsforge.base.resources import package_parent
from dsforge.base.text import first_line
from dsforge.catalog.engines.accelerate import accelerate_keys
from dsforge.catalog.engines.deepspeed import DeepSpeedKeys, keys_from, known_keys
from dsforge.catalog.engines.deepspeed_releases import is_known, keys_at
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.foreign.accelerate import check_accelerate
from dsforge.foreign.deepspeed.check import check_deepspeed
from dsforge.foreign.env_file import check_env_file
from dsforge.foreign.findings import first_of
from dsforge.foreign.hostfile import check_hostfile
from dsforge.foreign.json_text import JsonText, Placeholder, read_json
from dsforge.foreign.text import Kind, carriage_returns, read_foreign
from dsforge.ops import foreign_scripts as scripts
from dsforge.ops.checkout_check import check_checkout
from dsforge.ops.foreign_neox import NeoxFiles

_PROBE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found in a file, and the engine and version that the findings speak of."""

    engine: str
    findings: tuple[Finding, ...]


def check_foreign(
    path: Path,
    kind: Kind,
    replicas: int | None,
    environ: Mapping[str, str] | None = None,
    version: str | None = None,
) -> Checked:
    """Return the findings of a foreign file; DsforgeError when it cannot be read.

    `version`: the DeepSpeed that will read it; None for the installed one, or the catalogue's. With
    `environ` the installed DeepSpeed is asked, in a process with these variables: its own keys, and what it
    makes of the very file. DSF618 when it is not there, DSF619 for a version that is not known.
    """
    if kind is Kind.CHECKOUT:
        engine, findings = check_checkout(path)
        return Checked(engine, tuple(findings))
    text, file = read_foreign(path), str(path)
    if kind is Kind.ACCELERATE:
        known = accelerate_keys()
        return Checked(f"accelerate {known.version}", tuple(first_of(check_accelerate(text, file, known))))
    if kind in (Kind.HOSTFILE, Kind.ENV):
        check = check_hostfile if kind is Kind.HOSTFILE else check_env_file
        return Checked(f"launcher of deepspeed {known_keys().version}", tuple(first_of(check(text, file))))
    if kind is Kind.MEGATRON:
        returns = carriage_returns(path)
        found = [*([returns] if returns else []), *scripts.check(text, file, replicas, _catalogued(version))]
        return Checked(scripts.engine_of(text, file), tuple(first_of(found)))
    if kind is Kind.NEOX:
        revision = flavour_of("gpt-neox").revisions[0]
        return Checked(f"gpt-neox {revision}", tuple(first_of(NeoxFiles().check(text, file, replicas))))
    fills = kind is Kind.HF_TRAINER
    keys = _catalogued(version) if environ is None else _installed(tuple(sorted(environ.items())))
    found = check_deepspeed(text, file, keys, replicas=replicas, trainer_fills_auto=fills)
    if environ is not None and not fills:
        found += _verdict(read_json(text, file), keys, found, replicas, environ)
    suffix = ", installed" if keys.source == "installed" else ""
    return Checked(f"deepspeed {keys.version}{suffix}", tuple(first_of(found)))


def _catalogued(version: str | None) -> DeepSpeedKeys:
    """Return what the catalogue knows of a version; without one, of what is installed here, or its own."""
    if version is not None:
        return keys_at(version)
    try:
        here = metadata.version("deepspeed")
        return keys_at(here) if is_known(here) else known_keys()
    except (metadata.PackageNotFoundError, DsforgeError):
        return known_keys()


@cache
def _installed(environ: tuple[tuple[str, str], ...]) -> DeepSpeedKeys:
    return keys_from(_ask((), "", dict(environ))["table"], "installed")


def _verdict(
    read: JsonText,
    keys: DeepSpeedKeys,
    found: list[Finding],
    replicas: int | None,
    environ: Mapping[str, str],
) -> list[Finding]:
    """Return what the library itself says of a file that our own checks did not."""
    if read.placeholders or replicas is None:
        # Without the data-parallel size the library would judge the batch of one rank.
        replicas = replicas or _replicas_that_fit(read.document.data)
    if read.placeholders or replicas is None:
        return []
    answer = _ask(
        ("--config", "-", "--data-parallel", str(replicas)), json.dumps(read.document.data), environ
    )["verdict"]
    refused = any(one.severity is Severity.ERROR for one in found)
    if not answer["accepted"] and not refused:
        message = f"the installed library refuses the file: {first_line(answer['reason'])[:300]}"
        return [
            Finding("DSF617", Severity.ERROR, message, None, read.document.place(()), "correct what it names")
        ]
    said = {one.key for one in found}
    more = []
    for path in answer["unread"]:
        dotted = ".".join(path)
        if keys.section(path[:-1]) is None:
            continue  # parameters of an optimizer or scheduler: read when the engine is built, not here
        if dotted not in said and not any(dotted.startswith(f"{key}.") for key in said if key):
            message = f"`{dotted}` was not read: the installed library ignores it in this file"
            place = read.document.place(tuple(path))
            more.append(Finding("DSF610", Severity.WARNING, message, dotted, place, f"remove `{dotted}`"))
    return more


def _replicas_that_fit(data: Mapping[str, Any]) -> int | None:
    """Return a data-parallel size under which the batch numbers agree, so that all else can be judged."""
    total = data.get("train_batch_size")
    micro, steps = data.get("train_micro_batch_size_per_gpu"), data.get("gradient_accumulation_steps")
    numbers = [one for one in (total, micro, steps) if one is not None and not isinstance(one, Placeholder)]
    if not all(isinstance(one, int) and one > 0 for one in numbers):
        return 1
    if total and micro and steps:
        return max(1, int(total) // (int(micro) * int(steps)))
    return 1


def _ask(arguments: tuple[str, ...], stdin: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Run the probe; DsforgeError DSF618 when the library is not there or does not answer."""
    command = [sys.executable, "-m", "dsforge.train.probe", *arguments]
    variables = {**environ, "PYTHONPATH": str(package_parent())}
    try:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            env=variables,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _silent(f"it did not answer within {_PROBE_SECONDS:.0f} seconds") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise _silent(lines[-1][:300])
    answer: dict[str, Any] = loads(done.stdout)
    return answer


def _silent(reason: str) -> DsforgeError:
    return DsforgeError(
        "DSF618",
        f"the installed DeepSpeed cannot be asked: {reason}",
        hint="pip install 'dsforge[train]', or leave --probe out: the catalogue's version answers then",
        exit_code=ExitCode.ENVIRONMENT,
    )
