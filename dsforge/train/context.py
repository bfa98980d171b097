"""What a rank is told when it starts: the launcher's variables, the plan and the run's folders."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dsforge.base.canonical import loads
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.catalog.engines.capabilities import capabilities
from dsforge.plan.types import Plan
from dsforge.records import environment
from dsforge.records.run_dir import AttemptDir
from dsforge.train.agreement import check_agrees
from dsforge.train.samples import Sources, find_sources

_LONGEST_MARK = 120
_NUMBER = re.compile("[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class RankContext:
    """One rank's place in the world and everything it reads before the engines are imported."""

    plan: Plan
    ds_config: dict[str, Any]
    """Empty for a trainer without DeepSpeed."""
    rank: int
    local_rank: int
    world_size: int
    attempt: AttemptDir
    attempt_number: int
    """From 1; a later attempt goes on from what the run itself has saved."""
    run_id: str
    """Empty for a bundle that is run by hand."""
    checkpoint_dir: Path
    root: Path
    disk: Path | None
    """Folder of this run for what is offloaded to a disk; None where nothing is."""
    sources: Sources
    dump_dir: Path | None


def _required(variables: Mapping[str, str], name: str) -> str:
    value = variables.get(name, "")
    if not value:
        raise DsforgeError(
            "DSF301",
            f"the environment variable {name} is not set",
            hint="start the ranks with `dsforge launch`; the rendered bundle sets every variable",
            exit_code=ExitCode.ENVIRONMENT,
        )
    return value


def _required_int(variables: Mapping[str, str], name: str) -> int:
    text = _required(variables, name)
    if not _NUMBER.fullmatch(text):
        raise DsforgeError("DSF301", f"{name}={text!r} is not a whole number", exit_code=ExitCode.ENVIRONMENT)
    return int(text)


def _read_json(path: Path) -> Any:
    try:
        return loads(path.read_text("utf-8"))
    except OSError as error:
        raise DsforgeError(
            "DSF302",
            f"cannot be read: {error.strerror}",
            Place(file=str(path)),
            "the bundle must lie on a file system that every node sees",
            ExitCode.ENVIRONMENT,
        ) from error
    except ValueError as error:
        raise DsforgeError(
            "DSF302", f"is not JSON: {error}", Place(file=str(path)), "render the bundle again"
        ) from error


def read_plan(path: Path) -> Plan:
    """Return the plan in a file; DsforgeError when it is missing or of another version."""
    try:
        return Plan.model_validate(_read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise DsforgeError(
            "DSF303", f"{key}: {first['msg']}", Place(file=str(path)), "plan and render with this version"
        ) from error


def _attempt_number(folder: Path) -> int:
    number = folder.name.removeprefix("attempt-")
    return int(number) if number.isascii() and number.isdecimal() else 1


def _disk(plan: Plan, root: Path, variables: Mapping[str, str]) -> Path | None:
    """Two runs must not share a folder: each rank has files of one name in it."""
    if plan.offload.path is None:
        return None
    run = variables.get(environment.RUN_ID) or _required(variables, environment.ATTEMPT_DIR)
    mark = re.sub(r"[^A-Za-z0-9._-]+", "-", run).strip("-")
    return root / plan.offload.path / f"dsforge-{mark[-_LONGEST_MARK:]}"


def _ds_config(variables: Mapping[str, str], plan: Plan, disk: Path | None) -> dict[str, Any]:
    path = Path(_required(variables, environment.DS_CONFIG))
    ds_config: dict[str, Any] = _read_json(path)
    check_agrees(ds_config, plan, path)
    return on_disk(ds_config, disk)


def on_disk(ds_config: dict[str, Any], disk: Path | None) -> dict[str, Any]:
    """Return the engine's configuration with the run's own folder for what goes to the disk."""
    zero = {
        key: {**value, "nvme_path": str(disk)} if isinstance(value, dict) and "nvme_path" in value else value
        for key, value in ds_config["zero_optimization"].items()
    }
    return {**ds_config, "zero_optimization": zero}


def read_context(variables: Mapping[str, str] = os.environ) -> RankContext:
    """Return what the environment tells a rank; DsforgeError names a variable that is missing.

    A `ds_config.json` that would train anything but the plan is refused, too.
    """
    rank = _required_int(variables, "RANK")
    world_size = _required_int(variables, "WORLD_SIZE")
    local_rank = _required_int(variables, "LOCAL_RANK")
    _required(variables, "MASTER_ADDR")
    _required_int(variables, "MASTER_PORT")
    plan = read_plan(Path(_required(variables, environment.PLAN)))
    root = Path(_required(variables, environment.ROOT))
    builtin = None
    if plan.data.builtin_vocab is not None:
        builtin = Path(_required(variables, environment.CORPUS))
    disk = _disk(plan, root, variables)
    dump = variables.get(environment.DUMP_PARAMETERS)
    attempt = Path(_required(variables, environment.ATTEMPT_DIR))
    ds_config = _ds_config(variables, plan, disk) if capabilities(plan.trainer).deepspeed else {}
    return RankContext(
        plan=plan,
        ds_config=ds_config,
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        attempt=AttemptDir(attempt),
        attempt_number=_attempt_number(attempt),
        run_id=variables.get(environment.RUN_ID, ""),
        checkpoint_dir=Path(_required(variables, environment.CHECKPOINT_DIR)),
        root=root,
        disk=disk,
        sources=find_sources(plan, root, builtin),
        dump_dir=Path(dump) if dump else None,
    )
