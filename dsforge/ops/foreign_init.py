"""`init --from-...`: a recipe of what people have, and a line for each thing that it could not carry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsforge.base.errors import DsforgeError, Finding, Place, Severity
from dsforge.base.exits import ExitCode
from dsforge.base.text import shortened
from dsforge.catalog.engines.accelerate import accelerate_keys
from dsforge.catalog.engines.deepspeed import known_keys
from dsforge.foreign.accelerate import carry_accelerate, check_accelerate
from dsforge.foreign.deepspeed.carry import carry_deepspeed
from dsforge.foreign.deepspeed.check import check_deepspeed
from dsforge.foreign.findings import first_of
from dsforge.foreign.imports import Carried, Import, Left
from dsforge.foreign.text import Kind, read_foreign
from dsforge.ops import foreign_scripts as scripts
from dsforge.ops.foreign_neox import NeoxFiles
from dsforge.ops.starter import whole_nodes
from dsforge.plan.resolve import examine, make_plan, refusal
from dsforge.plan.types import Plan
from dsforge.recipe.document import Document, parse
from dsforge.recipe.load import LoadedRecipe, apply_override, check
from dsforge.recipe.model_file import names_config, read_model_config
from dsforge.recipe.resolved import leaves
from dsforge.recipe.yaml_text import block_lines

_LONGEST_COMMENT = 400
_NOT_HONOURED = "DSF140"
_EXPENDABLE = ("monitor.",)
"""What changes neither training nor memory is left behind where the trainer cannot honour it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is given beside the file, each None where it is not; `changes` are key=value of the recipe."""

    model: str | None = None
    gpus: int | None = None
    gpus_per_node: int = 8
    gpu: str | None = None
    seq_len: int | None = None
    changes: tuple[str, ...] = ()
    flavour: str | None = None
    more: tuple[Path, ...] = ()
    """Files that are read together with the first one."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A recipe's text and what it could not carry."""

    text: str
    left: tuple[Left, ...]


@dataclass(frozen=True, slots=True)
class Format:
    """One foreign format: its check (text, file, replicas) and its import (those and what is given)."""

    check: Callable[[str, str, int | None], list[Finding]]
    carry: Callable[[str, str, int | None, Mapping[str, Any]], Import]
    compare: Callable[[str, str, int | None, Mapping[str, Any], Plan], Iterable[Left]] | None = None
    """Yields what the plan of the recipe has otherwise than the file: those and the plan."""


FORMATS: Mapping[Kind, Format] = {
    Kind.DEEPSPEED: Format(
        lambda text, file, replicas: check_deepspeed(
            text, file, known_keys(), replicas=replicas, trainer_fills_auto=True
        ),
        lambda text, file, replicas, given: carry_deepspeed(
            text, file, known_keys(), given=given, replicas=replicas
        ),
    ),
    Kind.ACCELERATE: Format(
        lambda text, file, _: check_accelerate(text, file, accelerate_keys()),
        lambda text, file, replicas, given: carry_accelerate(
            text, file, accelerate_keys(), given=given, replicas=replicas
        ),
    ),
    Kind.MEGATRON: Format(scripts.check, scripts.carry, scripts.compare),
}
_NO_HINDRANCE = frozenset({"DSF608", "DSF610", "DSF622"})
"""Errors of a file that an import survives: keys that nothing reads, a number that only the
program's own reader takes for text, a batch given beside it."""
_UNREAD = ("DSF610", "DSF695")
"""Keys and options that nothing reads."""


def import_recipe(path: Path, kind: Kind, wanted: Wanted) -> Imported:
    """Return the recipe of a foreign file; it validates and plans.

    DsforgeError: DSF690 lists what must be given beside the file; or the findings of the rules, when the
    recipe that says what the file says cannot run.
    """
    text, file, form = read_foreign(path), str(path), _form(kind, wanted.more)
    options = _options(wanted)
    given = dict(leaves(_tree(Import(), options, wanted.changes).data))
    # The batch may follow from the number of replicas, which the file itself may name.
    document = _tree(form.carry(text, file, None, given), options, wanted.changes)
    replicas = _replicas(document)
    told = form.check(text, file, None if {"batch.global", "batch.micro"} & set(given) else replicas)
    _refuse_broken(told)
    found = form.carry(text, file, replicas, given)
    compare = form.compare
    try:
        _ask(found, _tree(found, options, wanted.changes), path)
        return _plannable(
            found,
            options,
            wanted,
            path,
            lambda plan: compare(text, file, replicas, given, plan) if compare is not None else (),
        )
    except DsforgeError as fault:
        raise _after_unread(fault, told) from None


def _form(kind: Kind, more: tuple[Path, ...]) -> Format:
    if kind is not Kind.NEOX:
        return FORMATS[kind]
    files = NeoxFiles(more)
    return Format(files.check, files.carry, files.compare)


def _refuse_broken(findings: Sequence[Finding]) -> None:
    """Raise what keeps the engine itself from taking the file."""
    errors = [one for one in findings if one.severity is Severity.ERROR and one.code not in _NO_HINDRANCE]
    if errors:
        raise refusal(first_of(errors))


def _after_unread(fault: DsforgeError, told: Sequence[Finding]) -> DsforgeError:
    """Return a refusal behind what is misspelt in the file, from which it may follow."""
    unread = [one for one in told if one.code in _UNREAD and (one.hint or "").startswith("did you mean")]
    if not unread:
        return fault
    own = Finding(fault.code, Severity.ERROR, fault.message, None, fault.place, fault.hint)
    first, *rest = first_of([*unread, own, *fault.findings])
    return DsforgeError(first.code, first.message, first.place, first.hint, fault.exit_code, tuple(rest))


def _options(wanted: Wanted) -> dict[str, Any]:
    """Return the recipe keys that options set."""
    values: dict[str, Any] = {}
    if wanted.model is not None:
        values["model"] = wanted.model
    if wanted.gpus is not None:
        nodes, per_node = whole_nodes(wanted.gpus, wanted.gpus_per_node)
        values |= {"cluster.nodes": nodes, "cluster.gpus_per_node": per_node}
    if wanted.gpu is not None:
        values["cluster.gpu"] = wanted.gpu
    if wanted.seq_len is not None:
        values["batch.seq_len"] = wanted.seq_len
    if wanted.flavour is not None:
        values["external.flavour"] = wanted.flavour
    return values


def _tree(found: Import, options: Mapping[str, Any], changes: Sequence[str]) -> Document:
    """Return the recipe as data; what was carried keeps its place in the foreign file."""
    document = Document({"version": 1})
    carried = [(one.key, one.value, one.place) for one in found.carried]
    for key, value, place in [*carried, *((key, value, None) for key, value in options.items())]:
        node = document.data
        *sections, last = key.split(".")
        for section in sections:
            node = node.setdefault(section, {})
        node[last] = value
        if place is not None:
            document.places[tuple(key.split("."))] = place
    for change in changes:
        apply_override(document, change)
    return document


def _replicas(document: Document) -> int | None:
    cluster, parallel = document.data.get("cluster", {}), document.data.get("parallel", {})
    if not isinstance(cluster, dict) or not isinstance(parallel, dict) or "gpus_per_node" not in cluster:
        return None
    numbers = [
        cluster.get("nodes", 1),
        cluster["gpus_per_node"],
        *(parallel.get(d, 1) for d in ("tp", "pp", "cp")),
    ]
    if not all(isinstance(number, int) and number > 0 for number in numbers):
        return None
    nodes, per_node, tp, pp, cp = numbers
    whole, rest = divmod(nodes * per_node, tp * pp * cp)
    return whole if whole and not rest else None


_OPTIONS = {
    "model": "--model NAME",
    "cluster.gpus_per_node": "--gpus N",
    "cluster.gpu": "--gpu NAME",
    "batch.seq_len": "--seq-len N",
}


def _ask(found: Import, document: Document, path: Path) -> None:
    """Raise DSF690 with everything that must still be given, the option's name in each hint."""
    missing = []
    document.data.setdefault("batch", {})
    for key, option in _OPTIONS.items():
        node: Any = document.data
        for part in key.split("."):
            node = node.get(part) if isinstance(node, dict) else None
        if node is None:
            missing.append(
                _lack(f"the file does not say `{key}`", key, Place(file=str(path)), f"add {option}")
            )
    for one in found.needed:
        hint = f"add {one.key}=VALUE after the options"
        missing.append(_lack(f"`{one.key}` must be given: {one.why}", one.key, one.place, hint))
    if not any(one.key == "batch.global" for one in missing) and "global" not in document.data["batch"]:
        why = "`batch.global` must be given: it follows from the number of GPUs, which is not known"
        missing.append(_lack(why, "batch.global", Place(file=str(path)), "add --gpus N or batch.global=N"))
    if missing:
        first = missing[0]
        raise DsforgeError(
            first.code, first.message, first.place, first.hint, ExitCode.USAGE, tuple(missing[1:])
        )


def _lack(message: str, key: str, place: Place | None, hint: str) -> Finding:
    return Finding("DSF690", Severity.ERROR, message, key, place, hint)


def _plannable(
    found: Import,
    options: dict[str, Any],
    wanted: Wanted,
    path: Path,
    otherwise: Callable[[Plan], Iterable[Left]],
) -> Imported:
    """Return the recipe's text; what only watches a run is left behind where the trainer cannot honour it."""
    loaded = _loaded(_tree(found, options, wanted.changes), path)
    for finding in examine(loaded):
        key = finding.key or ""
        if finding.code == _NOT_HONOURED and key.startswith(_EXPENDABLE):
            dropped = next((one for one in found.carried if one.key == key), None)
            if dropped is not None:
                found.carried.remove(dropped)
                found.left.append(Left(dropped.source, "", finding.message, dropped.place))
    document = _tree(found, options, wanted.changes)
    loaded = _loaded(document, path)
    errors = [one for one in examine(loaded) if one.severity is Severity.ERROR]
    if errors:
        raise _refused(errors, found)
    found.left += otherwise(make_plan(loaded))
    text = _text(document.data, found, wanted, path)
    assert parse(text, str(path)).data == document.data
    return Imported(text, tuple(found.left))


def _loaded(document: Document, path: Path) -> LoadedRecipe:
    document.data.setdefault("name", path.stem or "recipe")
    recipe = check(document)
    config = None
    if names_config(recipe.model):
        config = read_model_config(Path(str(recipe.model)), Place(file=str(path)))
    return LoadedRecipe(recipe, path, "", document, model_config=config)


def _refused(errors: Sequence[Finding], found: Import) -> DsforgeError:
    """Return the findings of a recipe that says what the file says, at the file's own places."""
    moved = []
    for one in errors:
        source = next((row for row in found.carried if row.key == one.key), None)
        hint = f"add {one.fix} if that is what the run should do" if one.fix else one.hint
        message = f"{one.message} (from `{source.source}`)" if source and source.place else one.message
        place = source.place if source else one.place
        moved.append(Finding(one.code, one.severity, message, one.key, place, hint, one.fix))
    return refusal(moved)


_SECTIONS = ("version", "name", "model", "cluster", "parallel", "offload", "batch", "train", "optimizer")


def _text(data: dict[str, Any], found: Import, wanted: Wanted, path: Path) -> str:
    changed = {change.partition("=")[0] for change in wanted.changes}
    head = [
        f"# Made from {path.name}. `dsforge validate` checks this file, `dsforge plan` shows what follows."
    ]
    if found.left:
        head.append("# What could not be carried:")
        head += [f"#   {_one_line(str(one))}" for one in found.left]
    derived = [one for one in found.carried if one.place is None and one.key not in changed]
    if derived:
        head.append("# What does not stand in the file as such:")
        head += [f"#   {one.key}: {_one_line(_derived(one))}" for one in derived]
    order = [key for key in _SECTIONS if key in data] + [key for key in data if key not in _SECTIONS]
    body = [line for _, line in block_lines({key: data[key] for key in order})]
    return "\n".join([*head, *body]) + "\n"


def _derived(one: Carried) -> str:
    return f"{one.value} - {one.source}"


def _one_line(text: str) -> str:
    return shortened("".join(char if char.isprintable() else " " for char in text), _LONGEST_COMMENT)
