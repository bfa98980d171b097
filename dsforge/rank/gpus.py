"""The GPUs of a host as NVIDIA's driver tells them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from dsforge.records.probe import Gpu

_SECONDS = 20.0
_MOST_XIDS = 3
_GPUS = "--query-gpu=uuid,name,driver_version,ecc.errors.uncorrected.volatile.total"
_PROCESSES = "--query-compute-apps=gpu_uuid,pid,process_name"


def gpus(environ: Mapping[str, str]) -> tuple[tuple[Gpu, ...], str | None]:
    """Return the GPUs, and why they are not known where they are not."""
    rows, problem = _query(_GPUS, environ)
    if problem is not None:
        return (), problem
    users: dict[str, list[str]] = {}
    for uuid, pid, name in _query(_PROCESSES, environ, width=3)[0]:
        users.setdefault(uuid, []).append(f"{name} (pid {pid})")
    return tuple(parse_gpu(row, users.get(row[0], ())) for row in rows if len(row) == 4), None


def parse_gpu(row: tuple[str, ...], users: tuple[str, ...] | list[str]) -> Gpu:
    """Return a GPU from what nvidia-smi prints of it; a GPU without error correction counts no errors."""
    _, name, driver, errors = row
    return Gpu(name, driver, int(errors) if errors.isdecimal() else 0, tuple(users))


def xids() -> tuple[str, ...]:
    """Return the last faults that the driver wrote to the kernel's log; none where it may not be read."""
    text, _ = _run(["dmesg"], {})
    return tuple(line.strip() for line in text.splitlines() if "NVRM: Xid" in line)[-_MOST_XIDS:]


def _query(what: str, environ: Mapping[str, str], width: int = 4) -> tuple[list[tuple[str, ...]], str | None]:
    text, problem = _run(["nvidia-smi", what, "--format=csv,noheader,nounits"], environ)
    rows = [tuple(cell.strip() for cell in line.split(",")) for line in text.splitlines() if line.strip()]
    return [row for row in rows if len(row) == width], problem


def _run(words: list[str], environ: Mapping[str, str]) -> tuple[str, str | None]:
    try:
        done = subprocess.run(
            words,
            env=dict(environ) or None,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        return "", f"{words[0]} is not installed"
    except (OSError, subprocess.SubprocessError) as error:
        return "", f"{words[0]} does not run: {error}"
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        return "", f"{words[0]}: {said[0]}"
    return done.stdout, None
