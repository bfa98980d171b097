"""The names inside a run directory, known to the supervisor, the ranks and the readers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_NUMBER = re.compile("[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class AttemptDir:
    """One attempt of a run: `RUN/attempt-N/` and the streams in it."""

    path: Path

    @property
    def metrics(self) -> Path:
        """Metrics lines and validations, written by rank 0."""
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        """Event files of TensorBoard, when the recipe wants them."""
        return self.path / "tensorboard"

    @property
    def events(self) -> Path:
        """Events of the supervisor and of rank 0."""
        return self.path / "events.jsonl"

    @property
    def lease(self) -> Path:
        """Locked by the supervisor for as long as it lives; ranks end when the lock is free."""
        return self.path / "lease"

    @property
    def stop_request(self) -> Path:
        """Number of the signal that the supervisor would send to ranks on other hosts, once there is one."""
        return self.path / "stop"

    @property
    def stack_request(self) -> Path:
        """How often the supervisor has asked where the ranks are: hosts that it cannot look into read it."""
        return self.path / "stack-request"

    @property
    def hostfile(self) -> Path:
        """The hosts of the attempt by node, as a hostfile; a restart may have taken spares."""
        return self.path / "hostfile"

    @property
    def bundle(self) -> Path:
        """The rendered files, where the attempt was planned anew and does not use the run's."""
        return self.path / "bundle"

    @property
    def launcher_log(self) -> Path:
        """What the launcher program itself printed."""
        return self.path / "launcher.log"

    @property
    def secrets(self) -> Path:
        """Beginning of the paths of each node's secrets, where the launcher hands them over in files."""
        return self.path / "secrets"

    def remove_secrets(self) -> None:
        """Remove those that no rank has read; OSError when the folder cannot be written."""
        for left in self.path.glob(f"{self.secrets.name}-*"):
            left.unlink(missing_ok=True)

    def rank_stream(self, node: int) -> Path:
        """World reports, heartbeats and exit records of one node's ranks."""
        return self.path / f"ranks-{node}.jsonl"

    def stacks(self, node: int) -> Path:
        """Stacks of one node's ranks, every time that the supervisor asked where they are."""
        return self.path / f"stacks-{node}.txt"

    def log(self, node: int) -> Path:
        """Output of one node's ranks, each line marked with its rank."""
        return self.path / f"node-{node}.log"


@dataclass(frozen=True, slots=True)
class RunDir:
    """One run: manifest, state, bundle and attempts."""

    path: Path

    @property
    def manifest(self) -> Path:
        """What was run: recipe, plan, hashes, versions, revision."""
        return self.path / "manifest.json"

    @property
    def state(self) -> Path:
        """Where the run stands and how it ended."""
        return self.path / "state.json"

    @property
    def lease(self) -> Path:
        """Locked by the supervisor from before its first state to after its last: who holds it supervises."""
        return self.path / "lease"

    @property
    def reserve(self) -> Path:
        """Room on the disk while the run is supervised: for its last state, if the disk is full by then."""
        return self.path / "reserve"

    @property
    def bundle(self) -> Path:
        """The rendered files."""
        return self.path / "bundle"

    def job_file(self, scheduler: str) -> Path:
        """Id of the job of `slurm` or `pbs` that supervises the run, when `dsforge launch` submitted one."""
        return self.path / f"{scheduler}-job"

    @property
    def job_environment(self) -> Path:
        """Variables for a job whose scheduler is not trusted with values: `NAME=value`, each ended by NUL."""
        return self.path / "job-environment"

    @property
    def job_secrets(self) -> Path:
        """The same of secrets; the job removes it when it has read it."""
        return self.path / "job-secrets"

    @property
    def allocation(self) -> Path:
        """Id of the Slurm job in which `dsforge launch` itself was started, by a script of the user's."""
        return self.path / "allocation"

    @property
    def job_log(self) -> Path:
        """What the batch script of that job printed, the supervisor included."""
        return self.path / "job.log"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints, when the recipe names no folder."""
        return self.path / "checkpoints"

    def attempt(self, number: int) -> AttemptDir:
        """Return attempt N, counted from 1."""
        return AttemptDir(self.path / f"attempt-{number}")

    def attempts(self) -> list[int]:
        """Return the numbers of the attempts that have a folder, in order; OSError when it is unreadable."""
        folders = [path for path in self.path.glob("attempt-*") if path.is_dir() and not path.is_symlink()]
        names = [path.name.removeprefix("attempt-") for path in folders]
        return sorted(int(name) for name in names if _NUMBER.fullmatch(name))
