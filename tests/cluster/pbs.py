"""Stand-ins for PBS's programs, by their names: a job is its script, run by ssh on its first host.

They do what OpenPBS's manual says of what dsforge uses, no more; there is no PBS here to compare them with.
STANDIN_FOLDER is the folder of jobs and of `hosts`, one a line, STANDIN_SSH the arguments of ssh.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

FOLDER = Path(os.environ.get("STANDIN_FOLDER", "."))
SSH = ["ssh", *shlex.split(os.environ.get("STANDIN_SSH", ""))]


def directives(script: Path) -> dict[str, str]:
    """Return the options in a script's lines for qsub; of `-l`, each resource."""
    found: dict[str, str] = {}
    for option, value in re.findall(r"^#PBS -(\w) (.*)$", script.read_text(), re.MULTILINE):
        name, _, amount = value.partition("=")
        found |= {name: amount} if option == "l" else {option: value}
    return found


def qsub(words: list[str]) -> int:
    options = {}
    while words[0].startswith("-"):
        options[words[0]] = words[1]
        words = words[2:]
    script = Path(words[0])
    asked = directives(script)
    if asked.get("q") == "none":
        sys.stderr.write("qsub: Unknown queue\n")
        return 170
    count, *chunk = asked["select"].split(":")
    ranks = int(dict(one.split("=") for one in chunk)["mpiprocs"])
    hosts = (FOLDER / "hosts").read_text().split()[: int(count)]
    number = len(list(FOLDER.glob("*.job"))) + 1
    job = FOLDER / f"{number}.job"
    job.mkdir()
    (job / "nodes").write_text("".join(f"{host}\n" * ranks for host in hosts))
    copy = job / "script"  # PBS runs its own copy
    copy.write_text(script.read_text())
    variables = [
        *options.get("-v", "").split(","),
        f"PBS_JOBID={number}.server",
        f"PBS_NODEFILE={job}/nodes",
        f"PBS_O_WORKDIR={Path.cwd()}",
    ]
    # In the home folder, with the environment of a login.
    inner = f"echo $$ > {job}/pid; exec bash {copy}"
    login = ["env", "-i", "PATH=/usr/bin:/bin:/usr/sbin", "HOME=/root", *variables, "bash", "-c", inner]
    with Path(options.get("-o", str(job / "out"))).open("wb") as log, (job / "lock").open("wb") as lock:
        # Held for as long as the job runs: process ids of one host mean nothing on another.
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.Popen(
            # Between them, for ssh closes what it is not told of.
            ["sh", "-c", '"$@"; :', "sh", *SSH, hosts[0], f"cd /; {shlex.join(login)}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[lock.fileno()],
        )
    sys.stdout.write(f"{number}.server\n")
    return 0


def job_of(word: str) -> Path:
    return FOLDER / f"{word.partition('.')[0]}.job"


def runs(job: Path) -> bool:
    with (job / "lock").open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def qstat(words: list[str]) -> int:
    code = 0
    for word in words[1:]:
        if not job_of(word).exists():
            sys.stderr.write(f"qstat: Unknown Job Id {word}\n")
            code = 153
        elif not runs(job_of(word)):
            sys.stderr.write(
                f"qstat: {word} Job has finished, use -x or -H to obtain historical job information\n"
            )
            code = 35
        else:
            sys.stdout.write(f"Job Id: {word}\n    Job_Name = small\n    job_state = R\n")
            sys.stdout.write(
                "    Variable_List = PBS_O_HOME=/root,\n\tPBS_O_LANG=C\n    comment = Job run at x\n\n"
            )
    return code


def signal_it(job: Path, name: str) -> None:
    host = (job / "nodes").read_text().split()[0]
    pid = (job / "pid").read_text().strip()
    subprocess.run([*SSH, host, f"kill -{name} {pid}"], check=False, stdin=subprocess.DEVNULL)


def qsig(words: list[str]) -> int:
    signal_it(job_of(words[2]), words[1].removeprefix("SIG"))
    return 0


def qdel(words: list[str]) -> int:
    signal_it(job_of(words[0]), "TERM")
    return 0


def install(folder: Path) -> None:
    """Put the four programs into a folder."""
    for name in ("qsub", "qstat", "qsig", "qdel"):
        program = folder / name
        program.write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(__file__)} {name} "$@"\n'
        )
        program.chmod(0o755)


if __name__ == "__main__":
    called, *given = sys.argv[1:]
    sys.exit({"qsub": qsub, "qstat": qstat, "qsig": qsig, "qdel": qdel}[called](given))
