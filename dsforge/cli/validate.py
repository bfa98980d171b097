"""`dsforge validate`: check recipes and the files of other tools, no GPU and no torch needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from dsforge.base.errors import DsforgeError, Finding, Severity
from dsforge.base.exits import ExitCode
from dsforge.cli import complete, output
from dsforge.cli.options import JsonOption, ProfileOption, SetOption


class FileKind(StrEnum):
    """What a file is to be taken for; the same words as `foreign.text.Kind`, which help must not load."""

    AUTO = "auto"
    RECIPE = "recipe"
    DEEPSPEED = "deepspeed"
    HF_TRAINER = "hf-trainer"
    ACCELERATE = "accelerate"
    HOSTFILE = "hostfile"
    ENV = "env"
    MEGATRON = "megatron"
    NEOX = "neox"
    CHECKOUT = "checkout"


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    app.command("validate", rich_help_panel=panel)(validate)


def validate(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE... [KEY=VALUE]...",
            help="Recipes or foreign files, then changes for all recipes.",
            autocompletion=complete.recipes_then_changes,
        ),
    ],
    set_: SetOption = None,
    profile: ProfileOption = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Write the edits that mend errors into the recipes; show them.")
    ] = False,
    as_: Annotated[
        FileKind,
        typer.Option(
            "--as", help="What the files are. auto: by name and content; hf-trainer: `auto` is filled in."
        ),
    ] = FileKind.AUTO,
    data_parallel: Annotated[
        int | None,
        typer.Option("--data-parallel", min=1, help="Replicas a DeepSpeed JSON is for: GPUs / (TP x PP)."),
    ] = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Ask the installed DeepSpeed, not the catalogue's version.")
    ] = False,
    deepspeed_version: Annotated[
        str | None,
        typer.Option(
            "--deepspeed-version", help="The DeepSpeed that will read the files. Default: the installed one."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check recipes, DeepSpeed JSON, Accelerate and GPT-NeoX YAML, launch scripts, hostfiles, .deepspeed_env.

    A recipe is checked against schema and rules; of another file it is said what the engine would really do
    with it; of a folder, which program's checkout it is, and what recipes could not ask of it. Exit 1 on
    errors, 2 when a file cannot be read.
    """
    if probe and deepspeed_version is not None:
        raise typer.BadParameter("`--probe` asks the installed version: leave --deepspeed-version out")
    changes = [word for word in arguments if "=" in word and not _is_file(word)]
    files = [Path(word) for word in arguments if word not in changes]
    if not files:
        raise DsforgeError("DSF022", "no recipe named", hint="`dsforge validate recipe.yaml`")
    worst = 0
    results: dict[str, list[dict[str, Any]]] = {"recipes": [], "foreign": []}
    for file in files:
        kind = _kind(file) if as_ is FileKind.AUTO else as_
        result: dict[str, Any]
        more: dict[str, Any]
        unmended: tuple[str, ...]
        if kind is FileKind.RECIPE:
            wanted = [*changes, *(set_ or ())]
            difference, unmended = _mend(file, wanted, profile) if fix else ("", ())
            found, code = _check(file, wanted, profile)
            result, about = {"recipe": str(file)}, ""
            more = {"diff": difference, "unmended": [*unmended]} if fix else {}
        else:
            if fix:
                raise DsforgeError(
                    "DSF600", f"{file} is no recipe: --fix does not write into it", hint="leave --fix out"
                )
            found, code, engine = _check_foreign(
                file, kind, data_parallel, probe=probe, version=deepspeed_version
            )
            result, more = {"file": str(file), "kind": kind.value, "engine": engine}, {}
            difference, unmended = "", ()
            about = f" ({engine})" if engine else ""
        worst = max(worst, code)
        listed = results["recipes" if kind is FileKind.RECIPE else "foreign"]
        listed.append({**result, "ok": code == 0, "findings": [one.as_dict() for one in found], **more})
        if not json:
            output.data(difference)
            output.findings(found)
            for why in unmended:
                output.note(f"not mended  {why}")
            output.line(f"{file}: {'ok' if code == 0 else 'refused'}{about}")
    if json:
        output.as_json({"ok": worst == 0, **results})
    raise typer.Exit(worst)


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except OSError:  # too long a word for a file's name, or a folder that may not be entered
        return False


def _kind(file: Path) -> FileKind:
    from dsforge.foreign.text import kind_of

    if file.is_dir():
        return FileKind.CHECKOUT
    return FileKind(kind_of(file).value)


def _mend(recipe: Path, changes: Sequence[str], profile: str | None) -> tuple[str, tuple[str, ...]]:
    """Write what mends a recipe; return the difference, and why errors are left.

    What cannot be read is told by the check.
    """
    from dsforge.base.files import write_atomically
    from dsforge.ops.mend import mend
    from dsforge.recipe.edit import unified_diff

    try:
        mended = mend(recipe, changes, profile, os.environ)
    except DsforgeError as fault:
        return "", (f"{fault.code}: a recipe that cannot be read is mended by hand",)
    if mended.after != mended.before:
        target = recipe.resolve()
        write_atomically(target, mended.after, mode=target.stat().st_mode & 0o777)
    return unified_diff(mended.before, mended.after, str(recipe)), mended.unmended


def _check(recipe: Path, changes: Sequence[str], profile: str | None) -> tuple[list[Finding], int]:
    from dsforge.plan.resolve import examine, make_plan
    from dsforge.plan.verdict import memory_findings
    from dsforge.recipe.load import load_recipe

    try:
        loaded = load_recipe(recipe, changes, profile, environ=os.environ)
        found = examine(loaded)
        if not _code(found):
            found += memory_findings(loaded, make_plan(loaded))
        if loaded.recipe.external is not None and not _code(found):
            from dsforge.ops.checkout_check import check_recipe_checkout

            found += check_recipe_checkout(loaded)
    except DsforgeError as fault:
        return _as_findings(fault)
    return found, _code(found)


def _check_foreign(
    file: Path, kind: FileKind, replicas: int | None, *, probe: bool, version: str | None
) -> tuple[list[Finding], int, str]:
    from dsforge.foreign.text import Kind
    from dsforge.ops.foreign_check import check_foreign

    try:
        checked = check_foreign(file, Kind(kind.value), replicas, os.environ if probe else None, version)
    except DsforgeError as fault:
        return (*_as_findings(fault), "")
    return list(checked.findings), _code(checked.findings), checked.engine


def _as_findings(fault: DsforgeError) -> tuple[list[Finding], int]:
    first = Finding(fault.code, Severity.ERROR, fault.message, None, fault.place, fault.hint)
    return [first, *fault.findings], int(fault.exit_code)


def _code(found: Sequence[Finding]) -> int:
    errors = any(one.severity is Severity.ERROR for one in found)
    return int(ExitCode.FINDINGS if errors else ExitCode.OK)
