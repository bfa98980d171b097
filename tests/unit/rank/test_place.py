"""What a rank's trainer is told by its host: through the wrapper, as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsforge.rank.place import place_variables
from dsforge.records.gpus import FILE_NAME, ChosenGpus
from tests.launch_support.bundles import REPOSITORY

PROGRAM = "import json, os; open('seen', 'w').write(json.dumps(dict(os.environ)))"


def _plan(folder: Path, accelerator: str = "cuda", **launch: Any) -> Path:
    plan = {
        "accelerator": accelerator,
        "layout": {"world_size": 4, "gpus_per_node": 2},
        "launch": {"stop_timeout_seconds": 1.0, **launch},
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    return folder / "plan.json"


def _rank(folder: Path, plan: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    (folder / "tiny_program.py").write_text(PROGRAM)
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "CUDA_DEVICE_ORDER")
    kept = {name: text for name, text in os.environ.items() if name not in names}
    ours = {
        "PYTHONPATH": str(REPOSITORY),
        "DSFORGE_PLAN": str(plan),
        "DSFORGE_ATTEMPT_DIR": str(folder / "a"),
    }
    return subprocess.run(
        [sys.executable, "-m", "dsforge.rank.main", "tiny_program"],
        cwd=folder,
        env={**kept, **ours, "MASTER_ADDR": "127.0.0.1", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


# Rank 3 of 4: the second of the second host, as each launcher tells it.
LAUNCHERS = {
    "deepspeed": {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_SIZE": "2", "CROSS_RANK": "1"},
    "openmpi": {
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    },
    "mpich": {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
    "torchrun": {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
    },
    "torchrun-c10d": {
        "RANK": "1",  # to torchrun this host is the first
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "DSFORGE_NODE": "1",
    },
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_take_the_chosen_gpus_under_every_launcher(launcher: str, tmp_path: Path):
    (tmp_path / FILE_NAME).write_text(ChosenGpus(((0, 1), (2, 5))).to_json())
    done = _rank(tmp_path, _plan(tmp_path), CUDA_VISIBLE_DEVICES="0,1", **LAUNCHERS[launcher])
    assert done.returncode == 0, done.stderr
    seen = json.loads((tmp_path / "seen").read_text())
    assert (seen["RANK"], seen["LOCAL_RANK"], seen["CROSS_RANK"]) == ("3", "1", "1")
    assert seen["CUDA_VISIBLE_DEVICES"] == "2,5"
    assert seen["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_without_a_choice_the_users_list_stays(tmp_path: Path):
    plan = _plan(tmp_path)
    assert place_variables(plan, 0, {"DSFORGE_VISIBLE_DEVICES": "4,5"}) == {"CUDA_VISIBLE_DEVICES": "4,5"}
    assert place_variables(plan, 0, {}) == {}
    (tmp_path / FILE_NAME).write_text(ChosenGpus(((6, 7),)).to_json())
    order = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST", "DSFORGE_VISIBLE_DEVICES": "4,5"}
    assert place_variables(plan, 0, order) == {"CUDA_VISIBLE_DEVICES": "6,7"}


def test_an_interface_that_a_host_does_not_have_ends_the_rank_with_a_word(tmp_path: Path):
    for choice in ("2001:db8:dead::/48", "auto"):  # the way to 127.0.0.1 is the loopback
        done = _rank(tmp_path, _plan(tmp_path, interface=choice), **LAUNCHERS["deepspeed"])
        assert done.returncode == 3
        assert f"dsforge: cluster.interface {choice} is none of this host's interfaces" in done.stderr
        assert not (tmp_path / "seen").exists()


def test_the_recipes_own_variables_are_left_alone(tmp_path: Path):
    own = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "x"}
    assert place_variables(_plan(tmp_path, "cpu", interface="127.0.0.0/8"), 0, own) == {}
    with pytest.raises(ValueError, match="none of this host's interfaces"):  # NCCL's is still to be found
        place_variables(_plan(tmp_path, "cuda", interface="127.0.0.0/8"), 0, own)


@pytest.mark.parametrize(
    "text", ["{}", '{"by_node": [["0"]]}', '{"by_node": [[0]], "schema_version": 9}', "["]
)
def test_a_choice_that_cannot_be_read_is_refused(text: str, tmp_path: Path):
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(ValueError):  # noqa: PT011 - each says it in its own words
        place_variables(_plan(tmp_path), 0, {})
