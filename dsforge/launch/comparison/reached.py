"""DSF240 to DSF246, DSF264: hosts that gave no answer, hosts with two names, shells that talk."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dsforge.base import shell
from dsforge.base.errors import Finding
from dsforge.launch.comparison.known import Known, fault, warning
from dsforge.launch.ssh import LOST_CODE

_NETWORK = (
    ("connection refused", "nothing listens for ssh there", "start sshd on it, or mend its port in ~/.ssh/config"),
    ("no route to host", "there is no route to it", "is it up? mend the network or its address"),
    ("network is unreachable", "there is no route to its network", "mend this host's routes or its address"),
    ("timed out", "it did not answer a connection in time", "is it up, and open to ssh from here?"),
)
_NO_MODULE = re.compile(r"No module named '?(?P<name>[\w.]+)")
_NOT_FOUND = 127
_NOT_RUN = 126


def check(known: Known) -> Iterator[Finding]:
    """Yield every host that did not answer, why, and hosts that are one host."""
    names: dict[str, str] = {}
    for seen in known.seen:
        if seen.silence is not None:
            yield explain(seen.host, seen.silence.code, seen.silence.words, known.python, known.seconds)
        if seen.facts is not None:
            first = names.setdefault(seen.facts.machine, seen.host)
            if first != seen.host:
                yield fault(
                    "DSF246",
                    seen.host,
                    f"{first} and {seen.host} are one host, which calls itself {seen.facts.host}",
                    "keep one of the two names in the hostfile: ranks of both would share its devices",
                )
        if seen.noise:
            yield warning(
                "DSF264",
                seen.host,
                f"its shell prints words to programs that log in: {seen.noise[-1]!r}",
                "print greetings in interactive shells only: test for `[ -t 1 ]` in its ~/.bashrc",
            )


def explain(
    host: str, code: int | None, words: Sequence[str], python: str = "", seconds: float = 0.0
) -> Finding:
    """Return why a host gave no answer, from the code that its ssh ended with and the words on stderr."""
    said = "\n".join(words)
    low = said.lower()
    last = words[-1] if words else "no word of why"
    again = f"`ssh {shell.join(['--', host])} true` shows it"
    if code is None:
        return fault(
            "DSF245",
            host,
            f"it gave no answer within {seconds:g} s" + (f": {last}" if words else ""),
            f"{again}; a slow host may be given more with --timeout",
        )
    if code == LOST_CODE:
        if "could not resolve hostname" in low:
            hint = "mend its name in the hostfile, or add it to DNS, /etc/hosts or ~/.ssh/config"
            return fault("DSF240", host, "its name does not resolve on this host", hint)
        if "host key verification failed" in low or "identification has changed" in low:
            changed = "changed" in low
            what = "its host key is not the known one" if changed else "its host key is not known here"
            keys = f"`ssh-keygen -R {shell.quote(host)}`, then " if changed else ""
            hint = f"{keys}`ssh-keyscan {shell.quote(host)} >> ~/.ssh/known_hosts`, once you trust the key"
            return fault("DSF242", host, what, hint)
        if "permission denied" in low:
            hint = f"`ssh-copy-id {shell.quote(host)}`: the launch asks no password"
            return fault("DSF243", host, f"it lets nobody in without a password: {last}", hint)
        for sign, what, hint in _NETWORK:
            if sign in low:
                return fault("DSF241", host, f"{what}: {last}", f"{hint}; {again}")
        return fault("DSF245", host, f"the connection broke: {last}", again)
    if code in (_NOT_FOUND, _NOT_RUN):
        what = "is not there" if code == _NOT_FOUND else "cannot be run"
        hint = "install the environment at the same path on every host, or on a file system that all share"
        return fault("DSF244", host, f"this Python {what}: {python} ({last})", hint)
    if match := _NO_MODULE.search(said):
        hint = f"install dsforge there for {python}, or put it on a file system that all hosts share"
        return fault("DSF244", host, f"its Python {python} has no module {match['name']}", hint)
    return fault("DSF245", host, f"the probe ended with code {code}: {last}", again)
