"""DSF150: launch.env leaves the launcher's own variables alone."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_RESERVED = {
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"),
    *("CROSS_RANK", "CROSS_SIZE", "MASTER_ADDR", "MASTER_PORT", "DS_ENV_FILE", "CUDA_VISIBLE_DEVICES"),
    *("JOB_COMPLETION_INDEX", "PATH"),
}
_PREFIXES = (
    *("DSFORGE_", "SLURM_", "SRUN_", "SBATCH_", "PBS_"),
    *("OMPI_COMM_", "PMI_", "PMIX_", "MPI_LOCAL", "PET_", "TORCHELASTIC_"),
)
"""dsforge's own, and those by which launchers are told what to do and ranks who they are."""
_SHELL = {
    *("BASH", "BASHOPTS", "BASHPID", "BASH_ALIASES", "BASH_ARGC", "BASH_ARGV", "BASH_ARGV0", "BASH_CMDS"),
    *("BASH_COMMAND", "BASH_LINENO", "BASH_SOURCE", "BASH_SUBSHELL", "BASH_VERSINFO", "BASH_VERSION"),
    *("COMP_WORDBREAKS", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "GROUPS"),
    *("HISTCMD", "IFS", "LINENO", "OLDPWD", "OPTIND", "PIPESTATUS", "POSIXLY_CORRECT", "PPID", "PWD"),
    *("RANDOM", "SECONDS", "SHELLOPTS", "SHLVL", "SRANDOM", "UID", "_"),
}
"""Variables that bash sets, computes or obeys itself (bash(1), Shell Variables): a value written here
would not arrive on the ranks as written."""


def _check(facts: Facts) -> Iterator[Found]:
    launch = facts.recipe.launch
    for section, names in (("env", tuple(launch.env)), ("env_from", launch.env_from)):
        for index, name in enumerate(names):
            if name in _RESERVED | _SHELL or name.upper().startswith(_PREFIXES):
                owner = "bash keeps for itself" if name in _SHELL else "the launcher sets on every rank"
                yield Found(
                    f"launch.{section} sets {name}, which {owner}",
                    f"launch.{section}.{name if section == 'env' else index}",
                    "remove it",
                )
    for name in sorted(set(launch.env) & set(launch.env_from)):
        yield Found(
            f"{name} stands in launch.env and in launch.env_from",
            f"launch.env.{name}",
            "keep it in launch.env_from if it is a secret, else in launch.env",
        )


RULE = Rule(
    code="DSF150",
    name="env-reserved",
    severity=Severity.ERROR,
    summary="launch.env leaves the launcher's own variables alone",
    why="Ranks take their identity from these; a recipe that sets them makes every rank the same one.",
    check=_check,
)
