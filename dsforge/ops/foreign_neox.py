"""GPT-NeoX configurations of one or several files, for `init` and `validate`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsforge.base.errors import Finding
from dsforge.foreign.imports import Import, Left
from dsforge.foreign.programs.neox import Configuration, read_neox, replicas_of
from dsforge.foreign.programs.neox_carry import carry_neox, differences
from dsforge.foreign.programs.neox_check import check_neox
from dsforge.foreign.text import read_foreign
from dsforge.plan.types import Plan


@dataclass(frozen=True, slots=True)
class NeoxFiles:
    """The files that are merged with the first one, as the program's launcher merges them."""

    more: Sequence[Path] = ()

    def check(self, text: str, file: str, replicas: int | None) -> list[Finding]:
        """Return the findings of the files together."""
        found = self._read(text, file)
        return check_neox(found, replicas or replicas_of(found))

    def carry(self, text: str, file: str, replicas: int | None, given: Mapping[str, Any]) -> Import:
        """Return what a recipe carries of the files."""
        return carry_neox(self._read(text, file), file, given=given, replicas=replicas).out

    def compare(
        self, text: str, file: str, replicas: int | None, given: Mapping[str, Any], plan: Plan
    ) -> Iterable[Left]:
        """Yield what the plan's configuration has otherwise than the files."""
        carrying = carry_neox(self._read(text, file), file, given=given, replicas=replicas)
        return differences(carrying, plan.external) if plan.external is not None else ()

    def _read(self, text: str, file: str) -> Configuration:
        return read_neox([(text, file), *((read_foreign(path), str(path)) for path in self.more)])
