"""The fan-out over ssh: room for the connections of all hosts, or a word before the first is reached."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsforge.rank.agent import READY

HOSTS = 80


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment whose ssh answers like an agent, after a while, and leaves a mark."""
    ssh = tmp_path / "ssh"
    ssh.write_text(
        f"#!/bin/sh\nhead -n 1 > /dev/null\nsleep 0.3\necho x >> {tmp_path}/reached\necho '{READY}'\n"
    )
    ssh.chmod(0o755)
    (tmp_path / "hosts").write_text(f"n[01-{HOSTS}] slots=8\n")
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}


def _fan_out(limit: str, folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = (
        f"{limit}; exec {sys.executable} -m dsforge.launch.fan_out --hostfile hosts --master-port 1 -- x"
    )
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


def test_the_soft_limit_of_open_files_is_raised(tmp_path: Path, environ: dict[str, str]):
    done = _fan_out("ulimit -Sn 70", tmp_path, environ)  # 64 hosts are reached at a time, two pipes each
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"n{number:02}: {READY}" for number in range(1, HOSTS + 1)]


def test_a_hard_limit_below_what_the_hosts_need_is_told_before_any_is_reached(
    tmp_path: Path, environ: dict[str, str]
):
    done = _fan_out("ulimit -n 200", tmp_path, environ)
    assert done.returncode == 3
    assert done.stderr == "dsforge: 224 open files are needed, `ulimit -Hn` allows 200: raise it\n"
    assert not (tmp_path / "reached").exists()
