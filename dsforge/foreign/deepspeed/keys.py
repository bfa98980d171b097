"""Each key of a DeepSpeed configuration against the library's: unknown, removed, of another type."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from dsforge.catalog.engines.deepspeed import Coming, DeepSpeedKeys, Key, Section
from dsforge.catalog.engines.deepspeed_releases import releases
from dsforge.foreign.findings import Examined, is_number, nearest, shown
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
                self.removed(dotted)
            elif dotted in self.keys.coming:
                self.coming(dotted, self.keys.coming[dotted], section)
            elif name not in section.keys:
                if not section.open:
                    self.unknown(dotted, section)
            elif dotted not in _OWN_CHECKS:
                self.value(dotted, value, section.keys[name], checked=section.checked)

    def removed(self, dotted: str) -> None:
        """Say of a key that is gone which release had it last."""
        last = releases().last.get(dotted)
        way_on = f", or stay at DeepSpeed {last}, the last that takes it" if last else ""
        self.seen.error(
            "DSF612",
            f"`{dotted}` no longer exists: {self.library} refuses the file",
            dotted,
            f"remove `{dotted}`{way_on}",
        )

    def coming(self, dotted: str, row: Coming, section: Section) -> None:
        """Say of a key that this release does not have yet which one does."""
        fate = "rejects the file" if section.checked else "never reads it and says nothing"
        self.seen.error(
            "DSF607",
            f"`{dotted}` needs DeepSpeed > {row.after}, {row.by} has it: {self.library} {fate}",
            dotted,
            f"upgrade DeepSpeed to {row.by} or newer, or remove `{dotted}`",
        )

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
        elif key.section is not None and isinstance(value, dict):
            self.section(value, key.section, dotted + ".")
        elif key.section is not None and (form := _old_form(dotted, value)) is not None:
            message = f"`{dotted}: {shown(value)}` is the form of old versions"
            self.seen.warn("DSF616", message, dotted, f"write {json.dumps(form)}", value=form)
        elif (kind := _json_type(value)) not in key.takes:
            self.reject(dotted, f"is {shown(value)}", _legal(key, value))
        elif isinstance(value, str) and key.kind in ("int", "float", "bool"):
            self.text(dotted, value, key, checked=checked)
        elif checked and key.kind == "int" and kind == "float" and not value.is_integer():
            self.reject(dotted, f"is {shown(value)}, not a whole number", _legal(key, value))
        elif checked and key.kind == "bool" and is_number(value) and value not in (0, 1):
            self.reject(dotted, f"is {shown(value)}, not true or false", _legal(key, value))
        elif checked and key.choices and value not in key.choices and value is not None:
            self.reject(dotted, f"is {shown(value)}, none of its values", _legal(key, value))
        elif is_number(value) and not _within(value, key):
            self.reject(dotted, f"is {shown(value)}, out of bounds", _legal(key, value))

    def reject(self, dotted: str, problem: str, hint: str) -> None:
        """Say of a value that the library refuses it."""
        self.seen.error("DSF615", f"`{dotted}` {problem}: {self.library} rejects the file", dotted, hint)

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
        hint = f"write {shown(plain)} without quotes" if plain is not None else _legal(key, value)
        what = f"`{dotted}` is the text {shown(value)}, not {_NAMES[key.kind]}"
        fix = {} if plain is None else {"value": plain}
        if not checked:
            fate = "any text counts as true" if key.kind == "bool" else "nothing checks it until it is used"
            self.seen.error("DSF614", f"{what}: {fate}", dotted, hint, **fix)
        elif plain is None or (key.kind == "int" and not value.strip().lstrip("+-").isdecimal()):
            self.reject(dotted, f"is the text {shown(value)}, not {_NAMES[key.kind]}", hint)
        elif (key.choices and plain not in key.choices) or not _within(plain, key):
            self.reject(dotted, f"is the text {shown(value)}", _legal(key, plain))
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


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {bool: "bool", int: "int", float: "float", str: "text", list: "list", dict: "object"}
    return kinds[type(value)]


def _within(value: float, key: Key) -> bool:
    return (key.least is None or value >= key.least) and (key.most is None or value <= key.most)


def _old_form(dotted: str, value: Any) -> dict[str, int] | None:
    """Return what `zero_optimization: true` of the first versions means today."""
    return {"stage": int(value)} if dotted == "zero_optimization" and isinstance(value, bool) else None


def _legal(key: Key, value: Any) -> str:
    """Return how a value would have to be written."""
    if key.section is not None:
        word = next((one for one in ("device", "stage") if one in key.section.keys), "enabled")
        return f"write {{{shown(word)}: {shown(value)}}}"
    if key.choices:
        folded = value.lower() if isinstance(value, str) else value
        if folded in key.choices:
            return f"write {shown(folded)}"
        return "one of " + ", ".join(shown(choice) for choice in key.choices)
    if is_number(value) and (key.least is not None or key.most is not None):
        return f"{key.least} to {key.most}" if key.most is not None else f"{key.least} or more"
    if key.kind in _NAMES:
        return f"write {_NAMES[key.kind]}"
    return f"it takes {', '.join(one for one in key.takes if one != 'null')}"


def walk(section: Section, at: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted section, key name) of a section and all below it."""
    for name, key in section.keys.items():
        yield at, name
        if key.section is not None:
            yield from walk(key.section, _under(at, name))
