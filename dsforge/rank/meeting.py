"""Whether hosts reach each other as their ranks will: one listens, the other connects and hears its word."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Sequence

from dsforge.records.probe import Listen, Listening, Target

_LONGEST_WORD_BYTES = 64


def listen(asked: Listen) -> Listening:
    """Listen as asked until this process ends."""
    meeting = _first_free(asked.ports, asked.word)
    port, refused = None, None
    if asked.address is not None:
        try:
            port = _serve(asked.address, 0, asked.word)
        except OSError as error:
            refused = error.strerror or str(error)
    return Listening(port, meeting, refused)


def _first_free(ports: Sequence[int], word: str) -> int | None:
    for port in ports:
        with contextlib.suppress(OSError):
            return _serve("", port, word)
    return None


def _serve(address: str, port: int, word: str) -> int:
    """Answer every connection with a word; return the port, OSError when it cannot be had."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    try:
        # As the rendezvous itself does: what only lingers from an earlier attempt is no obstacle.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        server.listen(1024)
    except OSError:
        server.close()
        raise
    threading.Thread(target=_answer, args=(server, word.encode("ascii")), daemon=True).start()
    return int(server.getsockname()[1])


def _answer(server: socket.socket, word: bytes) -> None:
    while True:
        with contextlib.suppress(OSError):
            connection, _ = server.accept()
            with connection:
                connection.sendall(word)


def reach(targets: Sequence[Target], seconds: float) -> tuple[str | None, ...]:
    """Return why each target cannot be reached, None where it can; all within about `seconds`."""
    faults: list[str | None] = ["no answer in time"] * len(targets)

    def look(index: int, target: Target) -> None:
        faults[index] = _fault(target, seconds)

    threads = [threading.Thread(target=look, args=pair, daemon=True) for pair in enumerate(targets)]
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()) + 1.0)
    return tuple(faults)


def _fault(target: Target, seconds: float) -> str | None:
    try:
        with socket.create_connection((target.address, target.port), seconds) as connection:
            connection.settimeout(seconds)
            heard = connection.recv(_LONGEST_WORD_BYTES)
    except socket.gaierror as error:
        return f"the name does not resolve: {error.strerror}"
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None if heard == target.word.encode("ascii") else "another program answers there"
