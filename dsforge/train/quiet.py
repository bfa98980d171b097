"""Keeps the engines' chatter out of the log: what is left there is worth reading."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator

_NOISE = (
    ("Transformer Engine and Apex are not installed", "megatron"),
    ("Apex is not installed", "megatron"),
    ("full scope is deprecated", "megatron"),
    ("When using async grad allreduce", "megatron"),
    (r"`torch.distributed\..*` is deprecated", "torch"),
    # Tensors that the pipeline receives are leaves: nothing is differentiated through the transfer.
    ("c10d::.* an autograd kernel was not registered", "torch"),
)


def filter_warnings() -> None:
    """Drop the warnings that every run on this stack gives and nobody can act on."""
    for message, package in _NOISE:
        warnings.filterwarnings("ignore", message=message, module=rf"{package}\.")


@contextlib.contextmanager
def no_chatter() -> Iterator[None]:
    """Drop what the engines print to stdout while they are built: the whole topology, a line a rank."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
