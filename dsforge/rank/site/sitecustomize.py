"""Has a program write its stacks when it is asked, and serves imports that it makes but does not use here.

On the path of imports of an external program alone. A stand-in takes the place of what is not installed,
and is told on stderr when it is first imported. What a program does with one while its modules load (a base
class, a decorator, a default value, `isinstance`, a chain of attributes) goes through; whoever uses one after
that is told what is not installed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
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
    """Serves names: last, what nobody else finds; or first, modules that do not load without a package."""

    def __init__(self, names: tuple[str, ...], package: str | None = None) -> None:
        self._names = names
        self._package = package

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        del path, target
        if not any(fullname == name or fullname.startswith(f"{name}.") for name in self._names):
            return None
        if self._package is not None:
            is_served = importlib.util.find_spec(self._package) is None
        else:
            # Who asks whether a package is there, and goes on without it, is told the truth.
            is_served = sys._getframe(2).f_code is not importlib.util.find_spec.__code__
        return ModuleSpec(fullname, self, is_package=True) if is_served else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        sys.stderr.write(f"dsforge: a stand-in serves the import of {module.__name__}\n")


class _AfterTorch(MetaPathFinder):
    """Comes first, and goes when PyTorch is imported: the stand-ins of its functions follow at once."""

    def __init__(self, stand_ins: dict[str, str]) -> None:
        self._stand_ins = stand_ins

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        del path, target
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_serve(module: ModuleType) -> None:
            run(module)
            importlib.import_module("cpu_device").install(self._stand_ins)

        spec.loader.exec_module = run_and_serve  # type: ignore[method-assign]  # of this import alone
        return spec


def _install() -> None:
    names = tuple(filter(None, os.environ.get("DSFORGE_STUBS", "").split(",")))
    plain = tuple(name for name in names if ":" not in name)
    if plain:
        sys.meta_path.append(_Finder(plain))
    for name, _, package in (text.partition(":") for text in names if text not in plain):
        sys.meta_path.insert(0, _Finder((name,), package))
    if stand_ins := json.loads(os.environ.get("DSFORGE_STAND_INS", "{}")):
        sys.meta_path.insert(0, _AfterTorch(stand_ins))


def _answer() -> None:
    with contextlib.suppress(ImportError):  # this Python is another than its rank's
        importlib.import_module("dsforge.base.stack_dump").install()


def _next() -> None:
    """Run the module of this name that would have been found without this one."""
    here = Path(__file__).parent
    others = [path for path in sys.path if Path(path or os.curdir).absolute() != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_install()
_answer()
_next()
