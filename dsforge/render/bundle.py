"""The Bundle: every file of a run as text, the same bytes for the same plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dsforge.base.canonical import dumps
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.base.files import write_atomically
from dsforge.plan.types import Plan
from dsforge.records.gpus import FILE_NAME as GPUS_FILE_NAME
from dsforge.records.gpus import ChosenGpus, parse_chosen_gpus
from dsforge.records.program import FILE_NAME
from dsforge.render.deepspeed_config import deepspeed_config
from dsforge.render.hosts import SPARES_FILE, PlaceOf, parse_hostfile, planned_world, render_hosts
from dsforge.render.launchers import launcher_files
from dsforge.render.program import program_file, uses_deepspeed

_EXECUTABLE = 0o755
_READABLE = 0o644


@dataclass(frozen=True, slots=True)
class Bundle:
    """Rendered files by name."""

    files: dict[str, str]

    @property
    def chosen_gpus(self) -> ChosenGpus | None:
        """Which GPUs of each host the ranks take, where the recipe chooses some."""
        text = self.files.get(GPUS_FILE_NAME)
        return None if text is None else parse_chosen_gpus(text)

    def write(self, where: Path) -> None:
        """Write every file atomically.

        DsforgeError DSF042 when the folder cannot be written, DSF047 when it holds other files than a bundle.
        """
        foreign = _foreign(where)
        if foreign:
            raise DsforgeError(
                "DSF047",
                f"{where} is not a bundle: it holds {foreign}",
                Place(file=str(where)),
                "name a new folder, or one that dsforge rendered",
            )
        try:
            for name, text in self.files.items():
                write_atomically(where / name, text, mode=_EXECUTABLE if name.endswith(".sh") else _READABLE)
        except OSError as error:
            raise DsforgeError(
                "DSF042",
                f"cannot write {where}: {error.strerror}",
                hint="name a writable folder with free space",
                exit_code=ExitCode.ENVIRONMENT,
            ) from None

    def drift(self, where: Path) -> list[str]:
        """Return the names of files that are missing, differ, or that do not belong to the bundle."""
        there = {path.name for path in where.iterdir()} if where.is_dir() else set()
        differing = [
            name
            for name, text in self.files.items()
            if not (where / name).is_file() or (where / name).read_bytes() != text.encode()
        ]
        return sorted({*differing, *(there - set(self.files))})


def _foreign(where: Path) -> str | None:
    """Return a file that shows a folder to be no bundle of ours: a bundle holds a plan.json."""
    if not where.is_dir():
        return None
    there = sorted(path.name for path in where.iterdir())
    if not there or "plan.json" in there:
        return None
    return there[0]


def _nowhere(_key: str) -> None:
    """Return no place: the plan came without its recipe."""


def render(plan: Plan, hostfile: tuple[str, str] | None = None, place_of: PlaceOf = _nowhere) -> Bundle:
    """Return the bundle of a plan. `hostfile` is (text, name) when the recipe names one.

    `place_of` tells where a key of the recipe stands. DsforgeError DSF043 where nothing says how ranks are
    started on several nodes; of the hosts DSF040, DSF041, DSF090,
    DSF091 and DSF721.
    """
    launcher = plan.launch.launcher
    if launcher is None:
        raise DsforgeError(
            "DSF043",
            f"{plan.layout.nodes} nodes, and nothing says how ranks are started on them",
            hint="name their hosts in cluster.hostfile, or set launch.launcher=slurm",
            exit_code=ExitCode.FINDINGS,
        )
    world = None
    if hostfile is not None:
        text, name = hostfile
        world = planned_world(parse_hostfile(text, name), plan, name, place_of)
    environment = sorted(plan.launch.env.items())
    return Bundle(
        {
            **({"ds_config.json": dumps(deepspeed_config(plan))} if uses_deepspeed(plan) else {}),
            **({FILE_NAME: program_file(plan, plan.external).to_json()} if plan.external else {}),
            "environment": "".join(f"{name}={value}\n" for name, value in environment),
            "plan.json": dumps(plan.to_json_value()),
            **launcher_files(plan, launcher, world, place_of),
            **({SPARES_FILE: render_hosts(world.spares)} if world is not None and world.spares else {}),
        }
    )
