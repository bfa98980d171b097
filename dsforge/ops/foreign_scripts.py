"""Launch scripts with the files beside them, for `init` and `validate`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dsforge.base.errors import DsforgeError, Finding
from dsforge.catalog.engines.deepspeed import DeepSpeedKeys, known_keys
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.foreign.imports import Import, Left
from dsforge.foreign.programs.check import check_script, replicas_of
from dsforge.foreign.programs.differences import differences
from dsforge.foreign.programs.script import MegatronScript, carry_script, read_megatron
from dsforge.foreign.text import read_foreign
from dsforge.plan.types import Plan


def check(text: str, file: str, replicas: int | None, keys: DeepSpeedKeys | None = None) -> list[Finding]:
    """Return the findings of a launch script; `keys` None: the catalogue's DeepSpeed reads its JSON."""
    read = _read(text, file, {})
    return check_script(read, replicas or replicas_of(read), keys or known_keys())


def engine_of(text: str, file: str) -> str:
    """Return the program that a script starts, and the revision that is spoken of."""
    flavour = flavour_of(_read(text, file, {}).arguments.flavour)
    return f"{flavour.name} {flavour.revisions[0]}"


def carry(text: str, file: str, replicas: int | None, given: Mapping[str, Any]) -> Import:
    """Return what a recipe carries of a launch script."""
    return carry_script(_read(text, file, given), file, given, replicas).out


def compare(
    text: str, file: str, replicas: int | None, given: Mapping[str, Any], plan: Plan
) -> Iterable[Left]:
    """Yield what the plan's command line has otherwise than the script's."""
    read = _read(text, file, given)
    carrying = carry_script(read, file, given, replicas)
    if plan.external is not None:
        listed = {one.key for one in carrying.out.left}
        yield from differences(read.arguments, plan.external, carrying.used | listed)


def _read(text: str, file: str, given: Mapping[str, Any]) -> MegatronScript:
    folder = Path(file).parent

    def beside(name: str) -> str | None:
        """Read a file named in the script: from where it lies, or from where we are."""
        for path in (folder / name, Path(name)):
            try:
                if path.is_file():
                    return read_foreign(path)
            except (OSError, DsforgeError):
                return None
        return None

    return read_megatron(text, file, beside, given.get("external.flavour"))
