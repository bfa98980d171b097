"""Values of the recipe on their way to ranks on other hosts, through the shells that stand there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dsforge.base.errors import DsforgeError
from dsforge.launch.kubernetes.job import filling
from dsforge.plan.resolve import examine, make_plan
from dsforge.rank.identity import identity
from dsforge.render.bundle import Bundle, render
from dsforge.render.kubernetes import fill
from tests.support.hostile import HOSTILE, names, one_line, recorder
from tests.support.kubernetes import expand
from tests.support.recipes import ROOT, loaded

NODES = {"cluster": {"nodes": 2, "gpus_per_node": 4}}
SLURM = {**NODES, "launch": {"launcher": "slurm"}}
POD = {"image": "a", "volumes": {"shared": "/mnt"}}
KUBERNETES = {**NODES, "launch": {"launcher": "kubernetes", "kubernetes": POD}}
PBS = {**NODES, "launch": {"launcher": "pbs"}}
PDSH = {"cluster": {**NODES["cluster"], "hostfile": "hosts"}}
HOSTS = "h1 slots=4\nh2 slots=4\n"
RANKS = 8
MPI = {"openmpi": "mpirun", "mpich": "mpiexec.hydra"}
PATIENCE_SECONDS = 60
SECRET = "s3cret $(touch PWNED) 'x' \\ %n"


def _start(folder: Path, changes: tuple[dict[str, Any], ...], program: str, **environ: str) -> dict[str, str]:
    """Render into a folder of a hostile name, run launch.sh, return the environment `program` had."""
    bundle = folder / "bundle $(touch PWNED) 'q' -x"
    plan = make_plan(loaded(*changes))
    render(plan, (HOSTS, "hosts") if plan.hostfile else None).write(bundle)
    (folder / "bin").mkdir()
    scontrol = folder / "bin" / "scontrol"
    scontrol.write_text("#!/bin/sh\necho NodeName=node1 NodeAddr=10.0.0.7 Port=1\n")
    scontrol.chmod(0o755)
    recorder(folder / "bin" / program, folder / "called.json")
    python = folder / "bin" / "python"
    if program != "python":
        python.write_text("#!/bin/sh\n")
        python.chmod(0o755)
    done = subprocess.run(
        ["bash", str(bundle / "launch.sh")],
        cwd=folder,
        env={
            "PATH": f"{folder}/bin:/usr/bin:/bin",
            "DSFORGE_CORPUS": "corpus",
            "DSFORGE_PYTHON": str(python),
            **environ,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not list(folder.rglob("PWNED"))
    argv, seen = json.loads((folder / "called.json").read_text())
    seen["argv"] = "\0".join(argv)
    return seen


def _through_slurm(folder: Path, *changes: dict[str, Any], **environ: str) -> dict[str, str]:
    """Return what a task of srun is given: the variables that --export names, and no others."""
    seen = _start(
        folder,
        (SLURM, *changes),
        "srun",
        SLURM_JOB_ID="1",
        SLURM_JOB_NODELIST="node[1-2]",
        AMBIENT="x",
        **environ,
    )
    (exported,) = [
        word.partition("=")[2] for word in seen["argv"].split("\0") if word.startswith("--export=")
    ]
    assert "AMBIENT" not in exported
    assert seen["MASTER_ADDR"] == "10.0.0.7"
    return {name: seen[name] for name in exported.split(",") if name in seen}


def _through_kubernetes(folder: Path, *changes: dict[str, Any], **environ: str) -> dict[str, str]:
    """Return what a container is given: what the job object of an attempt says, as Kubernetes reads it."""
    seen = _start(folder, (KUBERNETES, *changes), "python", **environ)
    words = seen["argv"].split("\0")
    given = {name: words[words.index(name) + 1] for name in ("--manifest", "--attempt")}
    rendered = json.loads(Path(given["--manifest"]).read_text())
    filled = fill(rendered, filling(Path(given["--attempt"]), "small", seen))
    template = filled["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    (container,) = template["spec"]["containers"]
    known: dict[str, str] = {}
    for entry in container["env"]:
        known[entry["name"]] = expand(entry["value"], known)
    return known


def _through_pdsh(folder: Path, *changes: dict[str, Any], **environ: str) -> dict[str, str]:
    """Return what a rank is given by deepspeed's own quoting, pdsh's percent signs and a remote shell."""
    from deepspeed.launcher.runner import EXPORT_ENVS, PDSHRunner, parse_args

    seen = _start(folder, (PDSH, *changes), "deepspeed", NCCL_AMBIENT="$(touch PWNED)", **environ)
    runner = PDSHRunner(parse_args(["script"]), "")
    for name, value in seen.items():  # as deepspeed.launcher.runner does, NCCL on machines with GPUs
        if name.startswith((*EXPORT_ENVS, "NCCL")):
            runner.add_export(name, value)
    with Path(seen["DS_ENV_FILE"]).open() as file:
        for line in file:
            runner.add_export(*line.split("=", maxsplit=1))
    exports = "".join(f"export {name}={value}; " for name, value in runner.exports.items())
    recorder(folder / "rank", folder / "rank.json")
    command = exports.replace("%%", "%") + str(folder / "rank")
    subprocess.run(["sh", "-c", command], env={"PATH": "/usr/bin:/bin"}, cwd=folder, check=True)
    assert not list(folder.rglob("PWNED"))
    return json.loads((folder / "rank.json").read_text())[1]


# As sshd does: what follows the host is one command of the user's shell, in an environment of its own.
SSHD = """\
#!/bin/bash
while case $1 in -[oF]) shift 2 ;; -*) shift ;; *) false ;; esac; do :; done
shift
exec env -i PATH=/usr/bin:/bin HOME=/ sh -c "$*"
"""


def _over_ssh(folder: Path, launcher: str, *changes: dict[str, Any], **environ: str) -> None:
    """Render into a folder of a hostile name and run launch.sh, with hosts that are this machine."""
    base = NODES if launcher == "pbs" else PDSH
    plan = make_plan(loaded(base, {"launch": {"launcher": launcher}}, *changes))
    bundle = folder / "bundle $(touch PWNED) 'q' -x"
    render(plan, (HOSTS, "hosts") if plan.hostfile else None).write(bundle)
    programs = folder / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(SSHD)
    (programs / "ssh").chmod(0o755)
    done = subprocess.run(
        ["bash", str(bundle / "launch.sh")],
        cwd=folder,
        env={
            "PATH": f"{programs}:/usr/bin:/bin",
            "DSFORGE_CORPUS": "corpus",
            "NCCL_AMBIENT": "$(touch PWNED)",
            **environ,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(folder.rglob("PWNED"))


def _through_fan_out(launcher: str, folder: Path, *changes: dict[str, Any], **environ: str) -> dict[str, str]:
    """Return what the launcher of a host is given, by ssh's command line, a remote shell and stdin."""
    _over_ssh(
        folder,
        launcher,
        *changes,
        PYTHONPATH=f"{Path(__file__).parent}/../launch_support/recording:{ROOT}",
        DSFORGE_PYTHON=sys.executable,
        **environ,
    )
    return json.loads((folder / "recorded-1").read_text())


def _through_mpi(launcher: str, folder: Path, *changes: dict[str, Any], **environ: str) -> dict[str, str]:
    """Return what the last rank is given by the real mpirun or mpiexec."""
    if shutil.which(MPI[launcher]) is None:
        pytest.skip(f"not installed: {MPI[launcher]}")
    recorder(folder / "rank", folder / "rank.json")
    python = folder / "python"
    is_last = f'[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = {RANKS - 1} ]'
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] || ! {is_last} || exec {folder}/rank\n')
    python.chmod(0o755)
    _over_ssh(folder, launcher, *changes, DSFORGE_PYTHON=str(python), **environ)
    return json.loads((folder / "rank.json").read_text())[1]


ROUTES = {"slurm": _through_slurm, "pdsh": _through_pdsh, "kubernetes": _through_kubernetes}


@pytest.mark.parametrize("launcher", ROUTES)
@settings(max_examples=15)
@given(st.text(min_size=1, max_size=20) | one_line, one_line, st.dictionaries(names, one_line, max_size=5))
def test_names_paths_and_values_arrive_as_written(
    launcher: str, name: str, checkpoints: str, variables: dict[str, str]
):
    assume("\0" not in name and not any("\ud800" <= char <= "\udfff" for char in name))
    assume(not {"BASH_ENV", "CDPATH", "LC_ALL"} & set(variables))  # read by the shells on the way
    assume(not checkpoints.startswith("~"))
    changes = {"name": name, "checkpoint": {"dir": checkpoints}, "launch": {"env": variables}}
    assume(not examine(loaded(changes)))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        seen = ROUTES[launcher](folder, changes)
        assert {key: seen[key] for key in variables} == variables
        absolute = checkpoints if checkpoints.startswith("/") else f"{folder}/{checkpoints}"
        assert seen["DSFORGE_CHECKPOINT_DIR"] == absolute
        assert seen["DSFORGE_PLAN"] == str(folder / "bundle $(touch PWNED) 'q' -x" / "plan.json")


@pytest.mark.parametrize("hostile", [*HOSTILE, " a ", "%n%h%%", "a,b", '"', "\t", "!x", "UCX"])
@pytest.mark.parametrize("launcher", ROUTES)
def test_each_hostile_text_alone(launcher: str, hostile: str, tmp_path: Path):
    variables = {"VALUE": hostile, "NCCL_X": hostile, "UCX_X": hostile, "name": hostile, "value": hostile}
    changes = {"name": f"{hostile}\n#SBATCH --wrap=x", "launch": {"env": variables}}
    seen = ROUTES[launcher](tmp_path, changes)
    assert {key: seen[key] for key in variables} == variables
    assert "NCCL_AMBIENT" not in seen


def test_secrets_go_by_name_under_slurm(tmp_path: Path):
    seen = _through_slurm(tmp_path, {"launch": {"env_from": ["HF_TOKEN"]}}, HF_TOKEN=SECRET)
    assert seen["HF_TOKEN"] == SECRET
    written = [path.read_text() for path in tmp_path.rglob("*.*") if path.name != "called.json"]
    assert not [text for text in written if "s3cret" in text]


def test_secrets_go_by_private_files_under_pdsh(tmp_path: Path):
    """Also those that deepspeed would put on a command line of its own accord."""
    from dsforge.rank.secrets import take_secrets

    kept = tmp_path / "kept"
    kept.mkdir()
    # What the launcher leaves is removed when it ends; a link to each file outlives that.
    hook = f'cp -p -- "$DSFORGE_SECRETS"-* {kept}/'
    changes = {"launch": {"env_from": ["MLFLOW_TRACKING_TOKEN", "HF_TOKEN"]}}
    plan = make_plan(loaded(PDSH, changes))
    bundle = tmp_path / "bundle"
    render(plan, (HOSTS, "hosts")).write(bundle)
    deepspeed = tmp_path / "deepspeed"
    deepspeed.write_text(f"#!/bin/sh\n{hook}\nenv > {tmp_path}/seen\n")
    deepspeed.chmod(0o755)
    environ = {"MLFLOW_TRACKING_TOKEN": SECRET, "HF_TOKEN": "two\nlines", "DSFORGE_DEEPSPEED": str(deepspeed)}
    paths = {"PATH": os.environ["PATH"], "DSFORGE_CORPUS": "corpus"}
    words = ["bash", str(bundle / "launch.sh")]
    subprocess.run(words, cwd=tmp_path, env={**environ, **paths}, check=True)
    files = sorted(kept.iterdir())
    assert [(file.name, file.stat().st_mode & 0o777) for file in files] == [
        ("secrets-0", 0o600),
        ("secrets-1", 0o600),
    ]
    assert take_secrets(files[0], 4) == {
        name: environ[name] for name in ("MLFLOW_TRACKING_TOKEN", "HF_TOKEN")
    }
    assert not list((tmp_path / "dsforge-run").rglob("secrets-*"))
    seen = (tmp_path / "seen").read_text() + (tmp_path / "dsforge-run/attempt-1/environment").read_text()
    assert "s3cret" not in seen
    assert "lines" not in seen
    assert "DSFORGE_SECRETS" in seen


@pytest.mark.parametrize("launcher", ["ssh", "torchrun", "pbs", *MPI])
def test_everything_arrives_over_ssh(launcher: str, tmp_path: Path):
    """One start with all hostile texts at once: it takes several programs."""
    through = _through_mpi if launcher in MPI else _through_fan_out
    variables = {f"VALUE_{number}": text for number, text in enumerate([*HOSTILE, "é ä\t", "a=b,c;d", " "])}
    launch = {"env": variables, "env_from": ["HF_TOKEN"]}
    changes = {"name": "$(touch PWNED)", "checkpoint": {"dir": "-rf $HOME"}, "launch": launch}
    (tmp_path / "nodes").write_text("h1\n" * 4 + "h2\n" * 4)
    job = {"PBS_JOBID": "1", "PBS_NODEFILE": str(tmp_path / "nodes"), "PBS_O_WORKDIR": str(tmp_path)}
    more = job if launcher == "pbs" else {}
    seen = through(launcher, tmp_path, changes, HF_TOKEN=f"{SECRET}\nx", **more)
    assert {key: seen[key] for key in variables} == variables
    assert seen["HF_TOKEN"] == f"{SECRET}\nx"
    assert seen["DSFORGE_CHECKPOINT_DIR"] == f"{tmp_path}/-rf $HOME"
    assert "NCCL_AMBIENT" not in seen
    written = [path.read_text() for path in (tmp_path / "dsforge-run").rglob("*") if path.is_file()]
    assert not [text for text in written if "s3cret" in text]


def test_the_launcher_pod_of_mpi_hands_everything_on(tmp_path: Path):
    """By the real mpirun, with workers that are this machine."""
    if shutil.which("mpirun") is None:
        pytest.skip("not installed: mpirun")
    variables = {f"VALUE_{number}": text for number, text in enumerate([*HOSTILE, "$$(HOME)", "a=b,c;d"])}
    pod = {**POD, "kind": "mpijob", "python": str(tmp_path / "python")}
    launch = {"launcher": "kubernetes", "kubernetes": pod, "env": variables, "env_from": ["HF_TOKEN"]}
    files = render(make_plan(loaded(NODES, {"launch": launch}))).files
    (tmp_path / "hostfile").write_text("w-0.job slots=4\nw-1.job slots=4\n")
    script = files["mpirun.sh"].replace("/etc/mpi/hostfile", str(tmp_path / "hostfile"))
    Bundle({**files, "mpirun.sh": script}).write(tmp_path / "bundle")
    (tmp_path / "attempt-1").mkdir()
    given = {"DSFORGE_BUNDLE": str(tmp_path / "bundle"), "DSFORGE_CORPUS": "c", "DSFORGE_ROOT": "/r $(A)"}
    filled = fill(json.loads(files["job.json"]), filling(tmp_path / "attempt-1", "small", given))
    (container,) = filled["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    known: dict[str, str] = {}
    for entry in container["env"]:
        known[entry["name"]] = expand(entry["value"], known) if "value" in entry else SECRET
    recorder(tmp_path / "rank", tmp_path / "rank.json")
    is_last = f'[ "$OMPI_COMM_WORLD_RANK" = {RANKS - 1} ]'
    (tmp_path / "python").write_text(f'#!/bin/sh\n[ "$1" = -c ] || ! {is_last} || exec {tmp_path}/rank\n')
    (tmp_path / "ssh").write_text(SSHD)
    for program in ("python", "ssh"):
        (tmp_path / program).chmod(0o755)
    done = subprocess.run(
        [expand(word, known) for word in container["command"]],
        cwd=container["workingDir"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", **known},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads((tmp_path / "rank.json").read_text())[1]
    assert {key: seen[key] for key in variables} == variables
    assert (seen["HF_TOKEN"], seen["DSFORGE_ROOT"], seen["MASTER_ADDR"]) == (SECRET, "/r $(A)", "w-0.job")
    told = {"RANK": "7", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "LOCAL_SIZE": "4", "CROSS_RANK": "1"}
    assert told.items() <= identity(seen).items()
    assert not list(tmp_path.rglob("PWNED"))


def test_torchrun_is_told_the_planned_world(tmp_path: Path):
    words = _through_fan_out("torchrun", tmp_path, MASTER_PORT="4000")["argv"]
    assert words == (
        "--node-rank=1 --nnodes=2 --nproc-per-node=4 --master-addr=h1 --master-port=4000 --max-restarts=0 "
        "--module dsforge.rank.main dsforge.train.main"
    )


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("OMPI_MCA_x", "$(touch PWNED)", "mpirun cannot hand on OMPI_MCA_x"),
        ("DSFORGE_SSH_ARGS", "-F 'a b'", "MPI hands DSFORGE_SSH_ARGS on without quotes"),
    ],
)
def test_what_mpirun_would_give_a_remote_shell_is_refused(name: str, value: str, words: str, tmp_path: Path):
    with pytest.raises(AssertionError, match=words):
        _through_mpi("openmpi", tmp_path, **{name: value})


def test_a_secret_that_is_not_set_starts_nothing(tmp_path: Path):
    for number, launch in enumerate(({"launcher": "slurm"}, {})):
        changes = NODES if launch else {}
        plan = make_plan(loaded(changes, {"launch": {**launch, "env_from": ["HF_TOKEN"]}}))
        render(plan).write(tmp_path / str(number))
        done = subprocess.run(
            ["bash", str(tmp_path / str(number) / "launch.sh")],
            env={"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "1", "DSFORGE_PYTHON": "true"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 3
        assert done.stderr == "dsforge: HF_TOKEN is not set, launch.env_from names it\n"


@pytest.mark.parametrize("folder", ["a b", "a$b", "a;b", "ö"])
def test_a_folder_that_deepspeed_cannot_quote_is_refused(folder: str, tmp_path: Path):
    render(make_plan(loaded(PDSH)), (HOSTS, "hosts")).write(tmp_path / "bundle")
    (tmp_path / folder).mkdir()
    done = subprocess.run(
        ["bash", str(tmp_path / "bundle" / "launch.sh")],
        env={"PATH": "/usr/bin:/bin", "DSFORGE_DEEPSPEED": "true"},
        cwd=tmp_path / folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "dsforge: deepspeed cannot start over pdsh from" in done.stderr


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, value) for key in ("partition", "account", "qos", "constraint") for value in HOSTILE),
        *(("partition", value) for value in ("a\n#SBATCH --wrap=id", "a b", "-x", "")),
        *(("extra", [value]) for value in HOSTILE),
        *(("extra", [value]) for value in ("--a\n", "-N2", "--mem 3", "--comment='x'", "--x=a#b", "--X=1")),
        *(("extra", [value]) for value in ("--nodes=3", "--export=ALL", "--exp=ALL", "--gpus=1", "--time=1")),
        ("cpus_per_task", 0),
        ("notice", "1d"),
    ],
)
def test_nothing_else_fits_a_line_that_slurm_reads(key: str, value: Any):
    with pytest.raises(DsforgeError) as caught:
        loaded(SLURM, {"launch": {"slurm": {key: value}}})
    assert caught.value.code == "DSF010"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, value) for key in ("queue", "project", "account") for value in HOSTILE),
        *(("resources", {"mem": value}) for value in HOSTILE),
        *(("queue", value) for value in ("a\n#PBS -l x", "a b", "-x", "a:b", "")),
        *(("resources", {name: "1"}) for name in ("ncpus", "select", "mem=1:x", "a b", "walltime")),
        ("place", "pack"),
        ("cpus_per_rank", 0),
    ],
)
def test_nothing_else_fits_a_line_that_pbs_reads(key: str, value: Any):
    with pytest.raises(DsforgeError) as caught:
        loaded(PBS, {"launch": {"pbs": {key: value}}})
    assert caught.value.code == "DSF010"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("volumes", {"a": value}) for value in ("mnt", "/", "/mnt/", "/a:b", "/a\nb", "")),
        *(("volumes", {name: "/mnt"}) for name in ("A", "a_b", "-a", "")),
        *(("tolerations", [value]) for value in (":NoSchedule", "a=b:Never", "a b", "a=b=c")),
        *(("resources", {"cpu": value}) for value in ("-1", "1 Gi", "x", "")),
        *(("labels", {"a": value}) for value in ("-a", "a b", "x" * 64)),
        *((key, value) for key in ("namespace", "service_account") for value in ("A", "a/b", "a b", "-a")),
        ("kind", "job"),
        ("python", "python"),
        ("image", "a b"),
    ],
)
def test_nothing_else_fits_a_job_object(key: str, value: Any):
    with pytest.raises(DsforgeError) as caught:
        loaded(KUBERNETES, {"launch": {"kubernetes": {key: value}}})
    assert caught.value.code == "DSF010"
