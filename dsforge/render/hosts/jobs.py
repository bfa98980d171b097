"""The hosts of a job as its scheduler lists them: Slurm's node list, PBS's file of hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.base.files import read_bounded
from dsforge.recipe.host_names import MOST_HOSTS, HostError, check_name, expand, same, split
from dsforge.render.hosts.hostfile import Hosts

_NODE_LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
_SLOTS = ("SLURM_GPUS_ON_NODE", "SLURM_NTASKS_PER_NODE")
_NODE_FILE = "PBS_NODEFILE"
_COUNT = re.compile(r"[1-9][0-9]{0,5}")
_LARGEST_BYTES = 16 * 2**20


def from_slurm(environ: Mapping[str, str], node_list: str | None, slots: int | None) -> tuple[Hosts, str]:
    """Return the hosts of a node list in its order, and where the slots were found.

    Without a list it is the job's own, without slots its GPUs or its tasks a node. DsforgeError DSF092.
    """
    where = "the node list"
    if node_list is None:
        where = next((name for name in _NODE_LISTS if environ.get(name)), "")
        if not where:
            example = "dsforge hostfile from-slurm 'node[01-04]' --slots 8"
            hint = f"run it inside the job, or give the list: `{example}`"
            raise _fault(f"this is no Slurm job: {_NODE_LISTS[0]} is not set", hint, ExitCode.ENVIRONMENT)
        node_list = environ[where]
    source = "--slots"
    if slots is None:
        source = next((name for name in _SLOTS if environ.get(name)), "")
        if not source:
            raise _fault(f"neither {' nor '.join(_SLOTS)} is set", "give the GPUs of a host with --slots")
        if not _COUNT.fullmatch(environ[source]):
            raise _fault(
                f"{source} is `{environ[source][:60]}`, no count", "give the GPUs of a host with --slots"
            )
        slots = int(environ[source])
    hosts: Hosts = {}
    seen: set[str] = set()
    for item in split(node_list.strip()):
        try:
            names = expand(item, MOST_HOSTS - len(hosts))
        except HostError as error:
            raise _fault(
                f"{where}: {error}", "give a list as Slurm writes it: `node[01-04,07],gpu1`"
            ) from None
        for host in names:
            if same(host) in seen:
                raise _fault(f"{where} names host `{host}` twice", "name each host once")
            seen.add(same(host))
            hosts[host] = slots
    return hosts, source


def from_pbs(environ: Mapping[str, str], slots: int | None) -> tuple[Hosts, str]:
    """Return the hosts of PBS_NODEFILE in its order, and where the slots were found.

    PBS names a host once for each of its processes. DsforgeError DSF092.
    """
    file = environ.get(_NODE_FILE)
    if not file:
        raise _fault(
            f"this is no PBS job: {_NODE_FILE} is not set", "run it inside the job", ExitCode.ENVIRONMENT
        )
    try:
        text = read_bounded(Path(file), _LARGEST_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise _fault(
            f"{file} cannot be read: {reason}", "run it inside the job", ExitCode.ENVIRONMENT
        ) from None
    hosts: Hosts = {}
    spelled: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        host = raw.strip()
        if not host:
            continue
        try:
            check_name(host)
        except HostError as error:
            raise _fault(str(error), error.hint, place=Place(file, number, 1)) from None
        host = spelled.setdefault(same(host), host)
        hosts[host] = hosts.get(host, 0) + 1
    if not hosts:
        raise _fault("names no host", "ask PBS for hosts: `#PBS -l select=4`", place=Place(file))
    if slots is not None:
        return dict.fromkeys(hosts, slots), "--slots"
    return hosts, f"how often {_NODE_FILE} names the host"


def _fault(
    message: str, hint: str, code: ExitCode = ExitCode.USAGE, place: Place | None = None
) -> DsforgeError:
    return DsforgeError("DSF092", message, place, hint, exit_code=code)
