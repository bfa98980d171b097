"""Hosts on this machine: each with a network, process ids, a name and an sshd; files are shared."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

_PATIENCE_SECONDS = 60.0
_SBIN = "/usr/sbin:/usr/local/sbin"
_SSHD = """\
ListenAddress {address}:22
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
"""
_SSH = """\
Host *
  IdentityFile {folder}/key
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""


@dataclass
class Host:
    """One host: its name, which is its network's too, and its address."""

    name: str
    address: str
    daemon: subprocess.Popen[bytes] | None = None

    def inside(self, *words: str) -> list[str]:
        """Return a command that runs here; it and all it starts end with the process that it is."""
        apart = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts")
        script = 'hostname "$0"; exec "$@"'
        return ["ip", "netns", "exec", self.name, *apart, "sh", "-c", script, self.name, *words]

    def in_its_files(self, *words: str) -> None:
        """Run a command that sees and changes what this host alone has mounted."""
        assert self.daemon is not None
        started = self.daemon.pid
        (daemon,) = Path("/proc", str(started), "task", str(started), "children").read_text().split()
        subprocess.run(["nsenter", f"--target={daemon}", "--mount", "--pid", *words], check=True)


@dataclass
class Cluster:
    """A bridge with hosts on it: the first starts jobs, the others run them, the last are spares."""

    folder: Path
    hosts: list[Host] = field(default_factory=list)
    spared: int = 0

    @property
    def head(self) -> Host:
        return self.hosts[0]

    @property
    def workers(self) -> list[Host]:
        return self.hosts[1 : len(self.hosts) - self.spared]

    @property
    def spares(self) -> list[Host]:
        return self.hosts[len(self.hosts) - self.spared :]

    @property
    def ssh_options(self) -> str:
        return f"-F {self.folder / 'config'}"

    def up(self, workers: int, spares: int = 0) -> None:
        """Build it all; CalledProcessError where this machine has no right to."""
        self.spared = spares
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / "key"], check=True)
        (self.folder / "config").write_text(_SSH.format(folder=self.folder))
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd does not start without it
        mark = os.getpid() % 46_000
        self._bridge = f"dsf{mark}"
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("link", "set", self._bridge, "up")
        for number in range(workers + spares + 1):
            host = Host(f"dsf{mark}h{number}", f"10.77.{mark % 250}.{number + 1}")
            self.hosts.append(host)
            outside = f"v{mark}n{number}"
            _ip("netns", "add", host.name)
            _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", host.name)
            _ip("link", "set", outside, "master", self._bridge, "up")
            for words in (
                ("addr", "add", f"{host.address}/24", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
            ):
                _ip("-n", host.name, *words)
            _ip("-n", host.name, "link", "set", "lo", "up")
        for host in self.hosts[1:]:
            self._start(host)
        for host in self.hosts[1:]:
            self._wait_for(host)

    def _start(self, host: Host) -> None:
        program = shutil.which("sshd", path=_SBIN)
        assert program is not None
        configuration = self.folder / host.address
        configuration.write_text(_SSHD.format(folder=self.folder, address=host.address))
        with (self.folder / "sshd.log").open("ab") as log:
            words = host.inside(program, "-D", "-e", "-f", str(configuration))
            host.daemon = subprocess.Popen(words, stdout=log, stderr=log)

    def crash(self, host: Host) -> None:
        """End everything that runs on a host, at once."""
        assert host.daemon is not None
        host.daemon.kill()
        host.daemon.wait()

    def boot(self, host: Host) -> None:
        """Have a host that crashed answer again."""
        self._start(host)
        self._wait_for(host)

    def _wait_for(self, host: Host) -> None:
        words = self.head.inside("ssh", "-F", str(self.folder / "config"), host.address, "true")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while subprocess.run(words, check=False, stderr=subprocess.DEVNULL).returncode != 0:
            assert time.monotonic() < deadline, (self.folder / "sshd.log").read_text()
            time.sleep(0.2)

    def connect(self, host: Host, *, connected: bool) -> None:
        """Plug a host's network in or out."""
        number = self.hosts.index(host)
        mark = host.name.removeprefix("dsf").partition("h")[0]
        _ip("link", "set", f"v{mark}n{number}", "up" if connected else "down")

    def down(self) -> None:
        """Take it all down."""
        for host in self.hosts:
            if host.daemon is not None:
                self.crash(host)
            subprocess.run(["ip", "netns", "del", host.name], check=False)
        subprocess.run(["ip", "link", "del", self._bridge], check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
