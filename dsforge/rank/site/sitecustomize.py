"""Stand-ins for imports that a program makes but does not use here, and that are not installed.

On the path of imports of an external program alone. Each stand-in is told on stderr when it is first
imported; whatever is called in it raises.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any


class _Absent(type):
    """A name of a package that is not there: it may be a base class, a decorator or an annotation, never used.

    What a module does while it is defined gives another such name; a call later on raises.
    """

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _absent(cls.__module__, f"{cls.__qualname__}.{name}")

    def __call__(cls, *arguments: Any, **_options: Any) -> Any:
        if sys._getframe(1).f_code.co_flags & inspect.CO_OPTIMIZED:  # a function's body
            package = cls.__module__
            raise RuntimeError(f"{package}.{cls.__qualname__} was called, and {package} is not installed")
        return arguments[0] if arguments and callable(arguments[0]) else cls


def _absent(module: str, name: str) -> type:
    return _Absent(name.rpartition(".")[2], (), {"__module__": module, "__qualname__": name})


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _absent(self.__name__, name)


class _Finder(MetaPathFinder, Loader):
    """Serves names: last, what nobody else finds; or first, modules that cannot be loaded without a package."""

    def __init__(self, names: tuple[str, ...], package: str | None = None) -> None:
        self._names = names
        self._package = package

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        del path, target
        if self._package == fullname:
            return None
        if any(fullname == name or fullname.startswith(f"{name}.") for name in self._names):
            if self._package is None or importlib.util.find_spec(self._package) is None:
                return ModuleSpec(fullname, self, is_package=True)
        return None

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
    sys.meta_path.append(_Finder(tuple(name for name in names if ":" not in name)))
    for name, _, package in (text.partition(":") for text in names if ":" in text):
        sys.meta_path.insert(0, _Finder((name,), package))
    if stand_ins := json.loads(os.environ.get("DSFORGE_STAND_INS", "{}")):
        sys.meta_path.insert(0, _AfterTorch(stand_ins))


def _next() -> None:
    """Run the module of this name that would have been found without this one."""
    here = Path(__file__).parent
    others = [path for path in sys.path if Path(path or os.curdir).absolute() != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_install()
_next()
