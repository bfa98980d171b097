from __future__ import annotations

import pytest

from dsforge.rank.identity import first_host, identity
from dsforge.rank.world import RankWorld, read_world

SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "16",  # the job's; the step is smaller
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_JOB_ID": "15003",
}


def test_a_task_of_srun_knows_who_it_is():
    found = identity(SLURM)
    assert found == {
        "RANK": "5",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "8",
        "LOCAL_SIZE": "4",
        "CROSS_RANK": "1",
        "CROSS_SIZE": "2",
        "MASTER_ADDR": "gpu07",
        "MASTER_PORT": "15003",
    }
    assert read_world(found) == RankWorld(rank=5, local_rank=1, world_size=8, node=1)


OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "OMPI_COMM_WORLD_NODE_RANK": "1",  # not the node's: the process's, on its node
}
MPICH = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
TORCHRUN = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "4",
}


@pytest.mark.parametrize("launcher", [OPEN_MPI, MPICH, TORCHRUN], ids=["openmpi", "mpich", "torchrun"])
def test_the_same_place_under_each_launcher(launcher: dict[str, str]):
    batch = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}  # of a script that started it
    found = {**launcher, **identity({**batch, **launcher})}
    assert read_world(found) == RankWorld(rank=5, local_rank=1, world_size=8, node=1)
    assert (found["LOCAL_SIZE"], found["CROSS_SIZE"]) == ("4", "2")


def test_a_task_of_srun_with_an_interface_of_mpi_is_slurms():
    assert identity({**SLURM, "PMI_RANK": "0", "PMI_SIZE": "1"}) == identity(SLURM)


def test_deepspeeds_launcher_inside_torchrun_has_the_say():
    assert identity({**TORCHRUN, "CROSS_RANK": "0"}) == {}


def test_what_is_set_stays():
    assert identity({**SLURM, "RANK": "0"}) == {}  # another launcher inside an allocation
    assert identity({}) == {}
    chosen = identity({**SLURM, "MASTER_ADDR": "ib07", "MASTER_PORT": "4000"})
    assert (chosen["MASTER_ADDR"], chosen["MASTER_PORT"]) == ("ib07", "4000")


def test_neighbouring_jobs_use_different_ports():
    ports = {identity({**SLURM, "SLURM_JOB_ID": str(job)})["MASTER_PORT"] for job in range(70_000, 70_100)}
    assert len(ports) == 100
    assert all(1024 < int(port) < 32_768 for port in ports)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SLURM_LOCALID", None, "did not set SLURM_LOCALID"),
        ("SLURM_STEP_NODELIST", None, "did not set SLURM_STEP_NODELIST"),
        ("SLURM_PROCID", "x", "SLURM_PROCID to 'x'"),
    ],
)
def test_a_missing_or_bad_variable_is_named(name, value, words):
    environ = {key: text for key, text in {**SLURM, name: value}.items() if text is not None}
    with pytest.raises(ValueError, match=words):
        identity(environ)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("gpu1", "gpu1"),
        ("gpu[07-09,12],login1", "gpu07"),
        ("b,a[1-2]", "b"),
        ("rack[1-2]n[03-05]", "rack1n03"),
        ("n[3,5]-ib", "n3-ib"),
    ],
)
def test_the_first_host_of_a_node_list(nodes, first):
    assert first_host(nodes) == first


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": ""}, "mpirun set OMPI_COMM_WORLD_SIZE to ''"),
        ({"MPI_LOCALRANKID": "0"}, "mpiexec.hydra did not set PMI_RANK"),
        ({"RANK": "0", "GROUP_RANK": "0"}, "torchrun did not set LOCAL_WORLD_SIZE"),
    ],
)
def test_who_left_a_variable_out_is_named(environ, words):
    with pytest.raises(ValueError, match=words):
        identity(environ)
