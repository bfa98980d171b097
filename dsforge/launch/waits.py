"""What the calls of a process say: whether it waits for others, and which part of a step it is in. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from dsforge.records.stacks import Frame

_COMMUNICATION = (
    *("torch/distributed/", "deepspeed/comm/"),
    *("deepspeed/runtime/pipe/p2p.py", "megatron/core/pipeline_parallel/p2p_communication.py"),
)
"""Whose calls end only when other ranks make theirs."""
_LIBRARIES = ("torch/", "deepspeed/", "megatron/core/", "transformers/", "accelerate/", "numpy/")
_STANDARD_LIBRARY = re.compile(r"/lib/python3\.[0-9]+/(?!site-packages/)|^<")
_WAITS = re.compile(r"\.(?:wait|synchronize)\(")
"""Methods of PyTorch's own, inside of which no call of Python is seen."""
_DEVICE_WAITS = re.compile(r"\.(?:item|cpu|tolist|numpy)\(|\.to\(['\"]cpu")
_DETOURS = ("wrapper", "log_wrapper", "inner", "decorate_context")
"""What libraries wrap their calls in; it tells nothing of which one it is."""
_PHASES = tuple(
    (phase, re.compile(words, re.IGNORECASE))
    for phase, words in (
        ("checkpoint", r"checkpoint|serialization|state_dict"),
        ("validation", r"validat|evaluat"),
        ("data", r"data_?loader|dataset|reader|batches"),
        ("optimizer", r"optimizer\w*\.\w*step|optimizer_step|_take_model_step|lr_schedul|^optimizer\.py"),
        ("backward", r"backward|autograd"),
        ("forward", r"forward"),
        ("start", r"rendezvous|init_process_group"),
    )
)
"""Words in the name of a function or of its file."""


def wait_of(frames: Sequence[Frame], *, on_gpus: bool) -> str | None:
    """Return what a rank waits for others in, and who called it; None where its innermost call is no wait.

    On GPUs collectives run behind the program: it then waits where it wants a value of its device.
    """
    if not frames:
        return None
    inner = frames[0]
    is_wait = _communicates(inner) or _WAITS.search(inner.code)
    if not is_wait and not (on_gpus and _DEVICE_WAITS.search(inner.code)):
        return None
    plain = [frame for frame in frames if frame.name not in _DETOURS] or [inner]
    # The outermost of the library's calls is the one that the program made.
    made = list(takewhile(_communicates, plain))
    caller = plain[len(made)] if len(made) < len(plain) else plain[-1]
    return f"{made[-1].name} of {caller}" if made else str(caller)


def phase_of(frames: Sequence[Frame]) -> str | None:
    """Return the part of a step that a rank is in, as far as the names of its calls tell.

    The outermost that tells counts: a backward pass computes forward again, a validation only forward.
    """
    for frame in reversed(frames):
        file = frame.file.rpartition("/")[2]
        for phase, words in _PHASES:
            if words.search(frame.name) or words.search(file):
                return phase
    return None


def place_of(frames: Sequence[Frame]) -> str:
    """Return the innermost call, and the nearest one of the program where that one is a library's."""
    inner = frames[0]
    outer = next((frame for frame in frames if not _is_of_a_library(frame)), inner)
    return str(inner) if outer is inner else f"{inner} of {outer}"


def _communicates(frame: Frame) -> bool:
    return frame.short_file.startswith(_COMMUNICATION)


def _is_of_a_library(frame: Frame) -> bool:
    return frame.short_file.startswith(_LIBRARIES) or bool(_STANDARD_LIBRARY.search(frame.file))
