"""The Bundle: every file of a run as text, the same bytes for the same plan."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import jinja2

from dsforge.base import shell
from dsforge.base.canonical import dumps
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.base.files import write_atomically
from dsforge.base.resources import folder
from dsforge.plan.types import Plan
from dsforge.render.deepspeed_config import deepspeed_config
from dsforge.render.hosts import check_hosts, parse_hostfile, render_hosts

_EXECUTABLE = 0o755
_READABLE = 0o644


@dataclass(frozen=True, slots=True)
class Bundle:
    """Rendered files by name."""

    files: dict[str, str]

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


def render(plan: Plan, hostfile: tuple[str, str] | None = None) -> Bundle:
    """Return the bundle of a plan. `hostfile` is (text, name) when the recipe names one.

    DsforgeError DSF043 for several nodes, which this build plans but does not start.
    """
    if plan.layout.nodes > 1:
        raise DsforgeError(
            "DSF043",
            f"{plan.layout.nodes} nodes: this build renders and launches jobs of one machine",
            hint="`dsforge plan` and `dsforge smoke` take this recipe as it is",
            exit_code=ExitCode.FINDINGS,
        )
    hosts = None
    if hostfile is not None:
        text, name = hostfile
        hosts = parse_hostfile(text, name)
        check_hosts(hosts, plan.layout, name)
    environment = dict(sorted(plan.launch.env.items()))
    return Bundle(
        {
            "ds_config.json": dumps(deepspeed_config(plan)),
            "environment": "".join(f"{name}={value}\n" for name, value in environment.items()),
            "hostfile": render_hosts(plan.layout, hosts),
            "launch.sh": _launch_script(plan, environment),
            "plan.json": dumps(plan.to_json_value()),
        }
    )


def _launch_script(plan: Plan, environment: dict[str, str]) -> str:
    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - shell, not HTML; every value passes dsforge.base.shell.quote
    )
    layout = plan.layout
    facts = {
        # A comment line: nothing in a name may end it.
        "name_comment": re.sub(r"[^A-Za-z0-9 ._-]", "?", plan.name),
        "world_size": layout.world_size,
        "tp": layout.tp,
        "pp": layout.pp,
        "dp": layout.dp,
        "zero": layout.zero,
    }
    return jinja.get_template("launch-local.sh.j2").render(
        plan=facts,
        exports=[f"export {name}={shell.quote(value)}" for name, value in environment.items()],
        checkpoint_dir=shell.quote(plan.checkpoint.dir) if plan.checkpoint.dir else None,
        builtin_vocab=plan.data.builtin_vocab,
    )
