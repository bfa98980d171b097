"""What DeepSpeed would really do with a configuration file."""

from __future__ import annotations

from dsforge.base.errors import Finding, Place, Severity
from dsforge.catalog.engines.deepspeed import DeepSpeedKeys
from dsforge.foreign.deepspeed.keys import KeyCheck
from dsforge.foreign.deepspeed.sense import (
    check_activation_checkpointing,
    check_batch,
    check_clipping,
    check_offload,
    check_precision,
)
from dsforge.foreign.deepspeed.solvers import check_optimizer, check_scheduler
from dsforge.foreign.findings import Examined, is_open
from dsforge.foreign.json_text import JsonText, read_json

_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def check_deepspeed(
    text: str,
    file: str,
    keys: DeepSpeedKeys,
    *,
    replicas: int | None = None,
    trainer_fills_auto: bool = False,
) -> list[Finding]:
    """Return the findings of a DeepSpeed JSON, errors first; DsforgeError DSF602 when it is not JSON.

    `replicas`: the data-parallel size, None where it is not known. `trainer_fills_auto`: the Hugging Face
    Trainer replaces each "auto" before DeepSpeed sees the file.
    """
    read = read_json(text, file)
    seen = Examined(read.document)
    _check_form(seen, read, file, keys.version)
    KeyCheck(seen, keys, trainer_fills_auto=trainer_fills_auto).run()
    check_precision(seen)
    check_clipping(seen, keys)
    check_offload(seen)
    check_batch(seen, replicas)
    check_optimizer(seen, keys)
    check_scheduler(seen, keys)
    check_activation_checkpointing(seen)
    if not trainer_fills_auto:
        _check_auto_parameters(seen)
    return sorted(seen.findings, key=lambda finding: _ORDER[finding.severity])


def _check_form(seen: Examined, read: JsonText, file: str, version: str) -> None:
    for path, first, _ in read.twice:
        seen.error(
            "DSF604",
            f"key `{path[-1]}` stands twice, first in line {first.line}: DeepSpeed {version} rejects the "
            "file, a program that reads it itself takes the last",
            path,
            "keep one of the two",
        )
    for word in dict.fromkeys(word for word, _ in read.lenient):
        places = [place for kind, place in read.lenient if kind == word]
        count = f" ({len(places)} of them)" if len(places) > 1 else ""
        message = (
            f"a {word}{count}: DeepSpeed's own reader takes it, Megatron-DeepSpeed and the Hugging Face "
            "Trainer read strict JSON and fail"
        )
        seen.findings.append(
            Finding("DSF603", Severity.WARNING, message, None, places[0], f"remove the {word}")
        )
    if read.placeholders:
        (path, place), filled = read.placeholders[0], len(read.placeholders)
        key = ".".join(map(str, path))
        message = (
            f"a template: {filled} value{'s are' if filled > 1 else ' is'} filled in later, `{key}` first; "
            "they are not judged here"
        )
        at = Place(file, place.line, place.column)
        hint = "check the file that comes of it too"
        seen.findings.append(Finding("DSF605", Severity.NOTE, message, key, at, hint))


def _check_auto_parameters(seen: Examined) -> None:
    for section in ("optimizer", "scheduler"):
        parameters = seen.get(f"{section}.params")
        for key, value in parameters.items() if isinstance(parameters, dict) else ():
            if is_open(value) and value == "auto":
                seen.error(
                    "DSF613",
                    f'`{section}.params.{key}` is "auto": outside the Trainer it is kept as text and fails '
                    "when used",
                    f"{section}.params.{key}",
                    "write the value; `--as hf-trainer` is for files that the Hugging Face Trainer fills in",
                )
