from __future__ import annotations

import pytest

from dsforge.launch.launchers.slurm import LAUNCHER, killed


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("srun: error: node2: task 1: Killed", [1]),
        ("srun: error: gpu-07: tasks 8-10,12: Killed", [8, 9, 10, 12]),
        ("srun: error: node2: task 3: Out Of Memory", [3]),
        ("srun: error: node1: task 0: Exited with exit code 137", []),  # its wrapper has said why
        ("srun: error: node1: task 0: Killed by somebody", []),
        ("[rank 0] srun: error: node1: task 0: Killed", []),
        ("srun: error: node1: tasks 1-: Killed", []),
    ],
)
def test_ranks_of_which_srun_says_that_they_were_killed(line: str, ranks: list[int]):
    assert killed(line) == ranks


def test_the_host_of_which_srun_says_that_it_failed():
    assert LAUNCHER.lost is not None
    match = LAUNCHER.lost.search("srun: error: Node failure on node2")
    assert match is not None
    assert match["host"] == "node2"
