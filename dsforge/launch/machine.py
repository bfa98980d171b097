"""What a launch needs of this machine: the launcher program, a shell, secrets, a free port."""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.base.resources import package_parent

_PORT_LIMITS = (20_000, 32_000)
"""Below the kernel's own range for outgoing connections, which begins at 32768."""
_PORT_TRIES = 200
_LAST_PORT = 65_535
_NUMBER = re.compile("[0-9]{1,5}")


def find_deepspeed() -> Path:
    """Return the deepspeed launcher of this Python's own environment; DsforgeError when it has none."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        program = folder / "deepspeed"
        if os.access(program, os.X_OK):
            return program
    raise _missing(
        "DSF204",
        f"the deepspeed launcher is not installed beside {sys.executable}",
        "install the training extra into this environment: pip install 'dsforge[train]'",
    )


def find_bash() -> Path:
    """Return bash; DsforgeError without one."""
    found = shutil.which("bash")
    if found is None:
        raise _missing(
            "DSF205", "bash is not installed", "the bundle's launch.sh is a bash script; install bash"
        )
    return Path(found)


def check_installed(program: str, package: str, environ: Mapping[str, str]) -> None:
    """Raise DsforgeError where a launcher's program is not on the PATH. `package` is Debian's for it."""
    if shutil.which(program, path=environ.get("PATH")) is None:
        raise _missing("DSF208", f"{program} is not installed", f"install it here: apt install {package}")


def check_secrets(names: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raise DsforgeError for each variable of `launch.env_from` that the caller's environment lacks."""
    absent = [name for name in names if name not in environ]
    if absent:
        raise DsforgeError(
            "DSF207",
            f"launch.env_from names {', '.join(absent)}, which the environment does not have",
            hint=f"export {absent[0]} before dsforge launch, or take it out of launch.env_from",
            exit_code=ExitCode.ENVIRONMENT,
        )


def rendezvous_port(environ: Mapping[str, str], *, here: bool = True) -> tuple[int, str | None]:
    """Return the port for the ranks to meet at, and why it is not the caller's MASTER_PORT if that is set.

    Unless they meet `here` nobody knows whether it is free. DsforgeError when no free port is found.
    """
    wanted = environ.get("MASTER_PORT")
    chosen = wanted_port(environ)
    if chosen is not None and (not here or _is_free(chosen)):
        return chosen, None
    port = free_port() if here else some_ports(1)[0]
    if not wanted:
        return port, None
    why = "is in use" if chosen is not None else "is not a port"
    return port, f"MASTER_PORT={wanted} {why}: the ranks meet at port {port} instead"


def wanted_port(environ: Mapping[str, str]) -> int | None:
    """Return the caller's MASTER_PORT; None where it is not set, or is no port."""
    wanted = environ.get("MASTER_PORT", "")
    return int(wanted) if _NUMBER.fullmatch(wanted) and 0 < int(wanted) <= _LAST_PORT else None


def some_ports(count: int) -> tuple[int, ...]:
    """Return ports at which ranks may meet, whether or not they are free."""
    return tuple(random.SystemRandom().sample(range(*_PORT_LIMITS), count))


def free_port() -> int:
    """Return a TCP port that nothing on this machine listens on; DsforgeError when none is found."""
    for _ in range(_PORT_TRIES):
        port = random.SystemRandom().randint(*_PORT_LIMITS)
        if _is_free(port):
            return port
    raise _missing(
        "DSF206",
        f"none of {_PORT_TRIES} TCP ports between {_PORT_LIMITS[0]} and {_PORT_LIMITS[1]} was free",
        "set MASTER_PORT to a free port",
    )


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the rendezvous itself does: what only lingers from an earlier attempt is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def python_path(environ: Mapping[str, str]) -> str | None:
    """Return the PYTHONPATH under which the ranks can import dsforge, or None to leave it as it is."""
    try:
        metadata.version("dsforge")
    except metadata.PackageNotFoundError:
        parts = [str(package_parent()), *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
        return os.pathsep.join(dict.fromkeys(parts))
    return None


def _missing(code: str, message: str, hint: str) -> DsforgeError:
    return DsforgeError(code, message, hint=hint, exit_code=ExitCode.ENVIRONMENT)
