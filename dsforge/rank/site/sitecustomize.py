"""Stand-ins for imports that a program makes but does not use here, and that are not installed.

On the path of imports of an external program alone. Each stand-in is told on stderr when it is first
imported. What a program does with one while its modules load (a base class, a decorator, a default value,
`isinstance`, a chain of attributes) goes through; whoever uses one after that is told what is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn


class _Name:
    """What a stand-in's name stands for: any object, as far as loading modules goes."""

    def __init__(self, module: str, name: str) -> None:
        self.__module__ = module
        self.__name__ = self.__qualname__ = name
        self._base: type | None = None

    def __getattr__(self, name: str) -> _Name:
        if name.startswith("__"):
            raise AttributeError(name)
        found = _Name(self.__module__, f"{self.__name__}.{name}")
        self.__dict__[name] = found
        return found

    def __call__(self, *_arguments: object, **_options: object) -> _Name:
        # Code of functions is optimised, that of modules and classes is not: those load, all but the one run.
        caller = sys._getframe(1)
        if caller.f_code.co_flags & CO_OPTIMIZED or caller.f_globals.get("__name__") == "__main__":
            self._refuse("called")
        return _Name(self.__module__, f"{self.__name__}(...)")

    def __getitem__(self, _key: object) -> _Name:
        return self

    def __or__(self, _other: object) -> _Name:
        return self

    __ror__ = __or__

    def __bool__(self) -> bool:  # noqa: PLE0304 - it has none
        self._refuse("asked whether it is true")

    def __mro_entries__(self, _bases: tuple[object, ...]) -> tuple[type]:
        return (self._class(),)

    def __instancecheck__(self, instance: object) -> bool:
        return self._base is not None and isinstance(instance, self._base)

    def __subclasscheck__(self, subclass: type) -> bool:
        return self._base is not None and issubclass(subclass, self._base)

    def _class(self) -> type:
        """Return the class that subclasses get, of the plainest kind, so that it goes with any other base."""
        if self._base is None:

            def refuse(*_arguments: object, **_options: object) -> NoReturn:
                self._refuse("called")

            self._base = type(self.__name__, (), {"__module__": self.__module__, "__new__": refuse})
        return self._base

    def _refuse(self, what: str) -> NoReturn:
        name = f"{self.__module__}.{self.__name__}"
        raise RuntimeError(f"{name} was {what}, and {self.__module__} is not installed")


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = _Name(self.__name__, name)
        self.__dict__[name] = found
        return found


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
