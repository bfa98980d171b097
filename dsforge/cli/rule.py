"""`dsforge rule`: what a rule code means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dsforge.base.errors import DsforgeError
from dsforge.cli import complete, output
from dsforge.cli.options import JsonOption

if TYPE_CHECKING:
    from dsforge.catalog.tables import ErrorMeaning


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    app.command("rule", rich_help_panel=panel)(rule)


def rule(
    code: Annotated[
        str | None,
        typer.Argument(
            help="A code such as DSF120; without one, all are listed.", autocompletion=complete.codes
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Explain a rule or an error code, or list all of them."""
    from dsforge.catalog.tables import errors
    from dsforge.rules.registry import rules

    if json:
        output.use_json()
    known, others = rules(), errors()
    if code is not None and code.upper() in others:
        _show_error(code.upper(), others[code.upper()], json=json)
        return
    if code is not None and code.upper() not in known:
        raise DsforgeError("DSF060", f"no rule or error `{code}`", hint="`dsforge rule` lists them")
    chosen = [known[code.upper()]] if code else list(known.values())
    if json:
        keys = ("code", "name", "summary", "why")
        output.as_json(
            {
                "rules": [{k: getattr(r, k) for k in keys} | {"severity": r.severity.value} for r in chosen],
                "errors": [] if code else [_as_dict(one, meaning) for one, meaning in others.items()],
            }
        )
    elif code:
        found = chosen[0]
        output.line(f"{found.code} {found.name} ({found.severity.value}): {found.summary}")
        output.line(found.why)
    else:
        rows = [(r.code, r.severity.value, r.name, r.summary) for r in chosen]
        output.table("Rules", ("code", "severity", "name", "what must hold"), rows)
        output.line()
        output.table(
            "Errors", ("code", "what is wrong"), [(one, meaning.what) for one, meaning in others.items()]
        )


def _as_dict(code: str, meaning: ErrorMeaning) -> dict[str, str]:
    return {"code": code, "summary": meaning.what, "why": meaning.why, "mend": meaning.mend}


def _show_error(code: str, meaning: ErrorMeaning, *, json: bool) -> None:
    if json:
        output.as_json({"rules": [], "errors": [_as_dict(code, meaning)]})
        return
    output.line(f"{code} (error): {meaning.what}")
    for text in filter(None, (meaning.why, meaning.mend)):
        output.line(text)
