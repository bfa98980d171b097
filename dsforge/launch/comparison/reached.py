"""DSF250 to DSF256, DSF274: hosts that gave no answer, hosts with two names, shells that talk."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dsforge.base import shell
from dsforge.base.errors import Finding
from dsforge.launch.comparison.known import Known, fault, warning
from dsforge.launch.ssh import LOST_CODE

_SSH = (
    (
        "could not resolve hostname",
        "DSF250",
        "its name does not resolve on this host",
        "mend its name in the hostfile, or add it to DNS, /etc/hosts or ~/.ssh/config",
    ),
    (
        "identification has changed",
        "DSF252",
        "its host key is not the known one",
        "`ssh-keygen -R {host}`, then `ssh-keyscan {host} >> ~/.ssh/known_hosts`, once you trust the new key",
    ),
    (
        "host key verification failed",
        "DSF252",
        "its host key is not known here",
        "`ssh-keyscan {host} >> ~/.ssh/known_hosts`, once you trust the key",
    ),
    (
        "permission denied",
        "DSF253",
        "it lets nobody in without a password: {last}",
        "`ssh-copy-id {host}`: a launch types no password",
    ),
    (
        "connection refused",
        "DSF251",
        "nothing listens for ssh there: {last}",
        "start sshd on it, or mend its port in ~/.ssh/config; {again}",
    ),
    (
        "no route to host",
        "DSF251",
        "there is no route to it: {last}",
        "is it up? start it, or mend the network; {again}",
    ),
    (
        "network is unreachable",
        "DSF251",
        "there is no route to its network: {last}",
        "mend this host's routes, or the address in the hostfile; {again}",
    ),
    (
        "timed out",
        "DSF251",
        "it did not answer a connection in time: {last}",
        "is it up, and open to ssh from here? {again}",
    ),
    ("", "DSF255", "the connection broke: {last}", "{again}"),
)
"""What ssh says, in lower case, and what that means; the last fits everything."""
_NO_MODULE = re.compile(r"No module named '?(?P<name>[\w.]+)")
_NOT_FOUND = 127
_NOT_RUN = 126


def check(known: Known) -> Iterator[Finding]:
    """Yield every host that did not answer, why, and hosts that are one host."""
    names: dict[str, str] = {}
    for seen in known.seen:
        if seen.silence is not None:
            silence = seen.silence
            if silence.why is not None:
                hint = (
                    f"`ssh {shell.join(['--', seen.host])} true | head -c 1000` shows what its shell prints"
                )
                yield fault("DSF255", seen.host, silence.why, hint)
            else:
                yield explain(seen.host, silence.code, silence.words, known.python, known.seconds)
        if seen.facts is not None:
            first = names.setdefault(seen.facts.machine, seen.host)
            if first != seen.host:
                yield fault(
                    "DSF256",
                    seen.host,
                    f"{first} and {seen.host} are one host, which calls itself {seen.facts.host}",
                    "keep one of the two names in the hostfile: ranks of both would share its devices",
                )
        if seen.noise:
            yield warning(
                "DSF274",
                seen.host,
                f"its shell prints words to programs that log in: {seen.noise[-1]!r}",
                "print greetings in interactive shells only: test for `[ -t 1 ]` in its ~/.bashrc",
            )


def explain(
    host: str, code: int | None, words: Sequence[str], python: str = "", seconds: float = 0.0
) -> Finding:
    """Return why a host gave no answer, from the code that its ssh ended with and the words on stderr."""
    again = f"`ssh {shell.join(['--', host])} true` shows it"
    if code is None:
        told = f": {words[-1]}" if words else ""
        hint = f"{again}; a slow host may be given more time with --timeout"
        return fault("DSF255", host, f"it gave no answer within {seconds:g} s{told}", hint)
    last = words[-1] if words else "no word of why"
    if code == LOST_CODE:
        said = "\n".join(words).lower()
        _, number, what, hint = next(row for row in _SSH if row[0] in said)
        named = {"host": shell.quote(host), "last": last, "again": again}
        return fault(number, host, what.format(**named), hint.format(**named))
    return _no_probe(host, code, words, python) or fault(
        "DSF255", host, f"what looks at it ended with code {code}: {last}", again
    )


def _no_probe(host: str, code: int, words: Sequence[str], python: str) -> Finding | None:
    share = "install the environment at the same path on every host, or on a file system that all share"
    if code in (_NOT_FOUND, _NOT_RUN):
        what = "is not there" if code == _NOT_FOUND else "cannot be run"
        return fault("DSF254", host, f"this Python {what}: {python}", share)
    match = _NO_MODULE.search("\n".join(words))
    if match is None:
        return None
    return fault("DSF254", host, f"its Python {python} has no module {match['name']}", share)
