"""Each key of a DeepSpeed configuration against the library's: unknown, removed, of another type."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dsforge.catalog.engines.deepspeed import DeepSpeedKeys, Key, Section
from dsforge.foreign.findings import Examined, nearest, shown
from dsforge.foreign.json_text import Placeholder

BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
_OWN_CHECKS = ("optimizer.params", "scheduler.params")
"""Mappings whose keys depend on a name beside them."""


class KeyCheck:
    """Walks a configuration beside the table of one version."""

    def __init__(self, seen: Examined, keys: DeepSpeedKeys, *, trainer_fills_auto: bool) -> None:
        self.seen, self.keys, self.trainer_fills_auto = seen, keys, trainer_fills_auto
        self.library = f"DeepSpeed {keys.version}"

    def run(self) -> None:
        """Add a finding for each key at fault."""
        self.section(self.seen.document.data, self.keys.top, "")
        if self.seen.has("bf16") and self.seen.has("bfloat16"):
            self.seen.error(
                "DSF610",
                f"`bfloat16` beside `bf16`: {self.library} reads `bf16` and ignores the other without a word",
                "bfloat16",
                "remove `bfloat16`",
            )

    def section(self, values: dict[str, Any], section: Section, at: str) -> None:
        """Check the keys of one mapping."""
        for name, value in values.items():
            dotted = at + name
            if dotted in self.keys.removed:
                self.seen.error(
                    "DSF612",
                    f"`{dotted}` no longer exists: {self.library} refuses the file",
                    dotted,
                    f"remove `{dotted}`",
                )
            elif name not in section.keys:
                if not section.open:
                    self.unknown(dotted, section)
            elif dotted not in _OWN_CHECKS:
                self.value(dotted, value, section.keys[name], checked=section.checked)

    def unknown(self, dotted: str, section: Section) -> None:
        """Say what becomes of a key that the library does not have."""
        at, _, name = dotted.rpartition(".")
        known = section.keys
        near = nearest(name, known)
        homes = [where for where, key in walk(self.keys.top) if key == name]
        if len(homes) == 1:
            hint = f"move it to `{_under(homes[0], name)}`"
        elif near:
            hint = f"did you mean `{_under(at, near)}`?"
        else:
            hint = f"remove `{dotted}`"
        if section.checked:
            self.seen.error(
                "DSF611", f"unknown key `{dotted}`: {self.library} rejects the file", dotted, hint
            )
        else:
            fate = f"{self.library} never reads it and says nothing"
            self.seen.error("DSF610", f"unknown key `{dotted}`: {fate}", dotted, hint)

    def value(self, dotted: str, value: Any, key: Key, *, checked: bool) -> None:
        """Check one value against its key's kind."""
        if isinstance(value, Placeholder):
            return
        if key.replaced_by:
            self.seen.warn("DSF616", f"`{dotted}` is deprecated", dotted, f"use `{key.replaced_by}` instead")
        if value == "auto" and key.default != "auto":
            self.auto(dotted, key, checked=checked)
        elif key.section is not None:
            if isinstance(value, dict):
                self.section(value, key.section, dotted + ".")
            elif value is not None:
                self.not_a_section(dotted, value, key.section)
        elif isinstance(value, str) and key.kind in ("int", "float", "bool"):
            self.text(dotted, value, key, checked=checked)
        elif checked and (problem := _mismatch(value, key)):
            self.reject(dotted, f"is {shown(value)}, {problem}", _legal(key))
        if checked and key.choices and value not in key.choices and value != "auto" and value is not None:
            folded = value.lower() if isinstance(value, str) else value
            hint = f"write {shown(folded)}" if folded in key.choices else _legal(key)
            self.reject(dotted, f"is {shown(value)}, none of its values", hint)

    def reject(self, dotted: str, problem: str, hint: str) -> None:
        """Say of a value that the library refuses it."""
        self.seen.error("DSF615", f"`{dotted}` {problem}: {self.library} rejects the file", dotted, hint)

    def not_a_section(self, dotted: str, value: Any, section: Section) -> None:
        """Say how a scalar would have to be written where a section belongs."""
        word = "device" if "device" in section.keys else "stage" if "stage" in section.keys else "enabled"
        if dotted == "zero_optimization" and isinstance(value, bool):
            stage = int(value)
            self.seen.warn(
                "DSF616",
                f"`{dotted}: {shown(value)}` is the form of old versions: stage {stage}",
                dotted,
                f'write {{"stage": {stage}}}',
                value={"stage": stage},
            )
            return
        self.reject(dotted, f"is {shown(value)}, not an object", f'write {{"{word}": {shown(value)}}}')

    def auto(self, dotted: str, key: Key, *, checked: bool) -> None:
        """Say what `auto` means where no Trainer of Hugging Face fills it in."""
        if self.trainer_fills_auto:
            return
        hint = "write the value; `--as hf-trainer` is for files that the Hugging Face Trainer fills in"
        if dotted in BATCH or not checked:
            fate = "raises a TypeError at start" if dotted in BATCH else "is kept as text and fails when used"
            self.seen.error("DSF613", f'`{dotted}` is "auto": outside the Trainer it {fate}', dotted, hint)
            return
        stands = f"the default applies: {shown(key.default)}"
        message = f'`{dotted}` is "auto": {self.library} drops it and {stands}'
        decides = dotted.endswith((".enabled", ".stage", ".device"))
        (self.seen.error if decides else self.seen.warn)("DSF613", message, dotted, hint)

    def text(self, dotted: str, value: str, key: Key, *, checked: bool) -> None:
        """Say what becomes of text where a number or a truth value belongs."""
        plain = _plain(value, key.kind)
        hint = f"write {shown(plain)} without quotes" if plain is not None else _legal(key)
        what = f"`{dotted}` is the text {shown(value)}, not {_NAMES[key.kind]}"
        fix = {} if plain is None else {"value": plain}
        if not checked:
            fate = "any text counts as true" if key.kind == "bool" else "nothing checks it until it is used"
            self.seen.error("DSF614", f"{what}: {fate}", dotted, hint, **fix)
        elif plain is None or (key.kind == "int" and not value.strip().lstrip("+-").isdecimal()):
            self.reject(dotted, f"is the text {shown(value)}, not {_NAMES[key.kind]}", hint)
        else:
            self.seen.warn("DSF614", f"{what}: it is taken as {shown(plain)}", dotted, hint, **fix)


def _under(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name


_NAMES = {"int": "a whole number", "float": "a number", "bool": "true or false", "text": "text"}
_TRUTH = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def _plain(text: str, kind: str) -> Any:
    """Return the value that a text spells; None when it spells none of this kind."""
    if kind == "bool":
        return _TRUTH.get(text.strip().lower())
    try:
        number = float(text) if len(text) < 40 else math.nan
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and kind == "int" else number


def _mismatch(value: Any, key: Key) -> str | None:
    """Return what is wrong with a value's type, if the library would refuse it."""
    if value is None:
        return None if key.default is None else f"not {_NAMES.get(key.kind, 'a value')}"
    if key.kind == "text":
        return None if isinstance(value, str) else "not text"
    if key.kind in ("int", "float", "bool") and isinstance(value, dict | list):
        return f"not {_NAMES[key.kind]}"
    if key.kind == "int" and isinstance(value, float) and not value.is_integer():
        return "not a whole number"
    if key.kind == "bool" and not isinstance(value, bool) and value not in (0, 1):
        return "not true or false"
    return None


def _legal(key: Key) -> str:
    if key.choices:
        return "one of " + ", ".join(shown(choice) for choice in key.choices)
    return f"write {_NAMES.get(key.kind, 'a value')}"


def walk(section: Section, at: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted section, key name) of a section and all below it."""
    for name, key in section.keys.items():
        yield at, name
        if key.section is not None:
            yield from walk(key.section, _under(at, name))
