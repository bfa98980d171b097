"""Where a process is: the calls that it is inside of."""

from __future__ import annotations

from dataclasses import dataclass

_LIBRARIES = "/site-packages/"


@dataclass(frozen=True, slots=True)
class Frame:
    """One call: function, file and line, and the code of that line where its host has it."""

    function: str
    file: str
    line: int
    code: str = ""

    @property
    def short_file(self) -> str:
        """The file as a library or a package calls it, and not where this host keeps it."""
        _, installed, inside = self.file.rpartition(_LIBRARIES)
        if installed:
            return inside
        _, own, inside = self.file.rpartition("/dsforge/")
        return f"dsforge/{inside}" if own else self.file

    @property
    def name(self) -> str:
        """The function's name, without that of the function inside of which it was made."""
        return self.function.rpartition("<locals>.")[2]

    def __str__(self) -> str:
        return f"{self.name} ({self.short_file}:{self.line})"
