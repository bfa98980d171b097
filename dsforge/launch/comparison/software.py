"""DSF257, DSF273, DSF802: the same Python and packages on every host, and kernels that can be compiled."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Finding
from dsforge.launch.comparison.known import Known, fault, warning
from dsforge.launch.op_cache import DISK, NO_DISK, folder_of


def check(known: Known) -> Iterator[Finding]:
    """Yield every package that differs from the launching host's."""
    for host, facts in known.answered():
        for name in sorted(known.here.versions.keys() | facts.versions.keys()):
            wanted, found = known.here.versions.get(name), facts.versions.get(name)
            if wanted != found:
                there = f"{name} {found}" if found else f"no {name}"
                yield fault(
                    "DSF257",
                    host,
                    f"it has {there}, this host has {wanted or 'none'}",
                    _hint(name, wanted, known.python),
                )


def check_ops(known: Known, needed: tuple[str, ...]) -> Iterator[Finding]:
    """Yield the kernels that a host has not built and could not build."""
    for host, facts in known.answered():
        absent = [name for name in needed if folder_of(name) not in facts.built_ops]
        missing = [name for name, there in facts.compilers.items() if not there]
        if DISK in absent and missing:
            why = f"{NO_DISK}: it has no {', '.join(missing)}"
            yield fault("DSF802", host, why, f"install {missing[0]} there, or offload to the CPU")
        elif absent and missing:
            yield warning(
                "DSF273",
                host,
                f"{', '.join(absent)} is not built, and it has no {', '.join(missing)}: "
                "PyTorch's own is used instead",
                f"install {missing[0]} there, or share {known.question.ops} with a host that has it",
            )


def _hint(name: str, wanted: str | None, python: str) -> str:
    if name == "python":
        return "install the environment at the same path on every host, or share it"
    what = f"install '{name}=={wanted}'" if wanted else f"uninstall {name}"
    return f"there: `{python} -m pip {what}`"
