"""Stand-ins for imports that a program makes but does not use here, and that are not installed.

On the path of imports of an external program alone. Each stand-in is told on stderr when it is first
imported; whatever is called in it raises.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def missing(*_arguments: object, **_options: object) -> None:
            raise RuntimeError(f"{self.__name__}.{name} was called, and {self.__name__} is not installed")

        return missing


class _Finder(MetaPathFinder, Loader):
    """Comes last, so it is asked only for what nobody else finds."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        del path, target
        if any(fullname == name or fullname.startswith(f"{name}.") for name in self._names):
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        sys.stderr.write(f"dsforge: a stand-in serves the import of {module.__name__}\n")


def _install() -> None:
    names = tuple(filter(None, os.environ.get("DSFORGE_STUBS", "").split(",")))
    if names:
        sys.meta_path.append(_Finder(names))


def _next() -> None:
    """Run the module of this name that would have been found without this one."""
    here = Path(__file__).parent
    others = [path for path in sys.path if Path(path or os.curdir).absolute() != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_install()
_next()
