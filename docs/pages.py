"""The generated pages of the reference; `conf.py` writes them at every build.

What is generated is read where the program reads it, so a page cannot say something else.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dsforge.base.units import format_bytes
from dsforge.catalog.engines.capabilities import capabilities, trainers
from dsforge.catalog.engines.flavours import FLAVOURS
from dsforge.catalog.tables import hardware, models
from dsforge.cli.main import app, main
from dsforge.recipe.consequences import consequence
from dsforge.recipe.fields import RecipeField, fields
from dsforge.recipe.model import Recipe
from dsforge.recipe.vocabulary import keys_of, section_of
from dsforge.recipe.yaml_text import flow_text


def pages() -> dict[str, str]:
    """Return the text of every generated page by its file's name."""
    made = {"recipe": recipe_page, "commands": commands_page, "rules": rules_page, "presets": presets_page}
    return {f"{name}.md": "\n".join(page()) + "\n" for name, page in made.items()}


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a table; what would end a cell or be read as HTML is shown as it is."""
    yield ""
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |"
    yield ""


def plain(text: str) -> str:
    """Return a text that Markdown shows letter by letter, but for code between backticks."""
    parts = text.split("`")
    return "`".join(
        part if number % 2 else "".join(f"\\{char}" if char in "\\*_[]<>#" else char for char in part)
        for number, part in enumerate(parts)
    )


def code(text: str) -> str:
    """Return a text as code."""
    return f"`{text}`" if text else ""


def recipe_page() -> Iterator[str]:
    """Yield the page of every recipe key."""
    yield "# Recipe fields"
    yield ""
    yield (
        "Every key of a recipe. What a change of it does is one of three: *convergence* alters what is "
        "learnt, *execution* how it runs, *cosmetic* neither; `dsforge diff` judges by it. Where a trainer "
        "takes fewer values than the format, they are listed; any other is refused (DSF140). "
        "[Precedence](../precedence.md) says where values come from; `dsforge schema` prints the JSON Schema."
    )
    tables: dict[str, list[RecipeField]] = {}
    for field in fields().values():
        section = field.key.partition(".")[0] if "." in field.key else ""
        tables.setdefault(section, []).append(field)
    for section, members in tables.items():
        yield ""
        yield f"## {section or 'Top level'}"
        if section:
            found = section_of(keys_of(Recipe)[section])
            assert found is not None, "only sections hold dotted keys"
            yield ""
            yield plain(found.__doc__ or "")
        yield from table(
            ("key", "takes", "default", "a change is", "meaning"),
            (
                (
                    code(field.key.removeprefix(f"{section}.")),
                    plain(field.kind),
                    "required" if field.required else code(flow_text(field.default)),
                    consequence(field.key).word,
                    " ".join([plain(field.description), *_limits(field.key)]),
                )
                for field in members
            ),
        )


def _trainers() -> list[str]:
    return [*trainers(), *FLAVOURS]


def _limits(key: str) -> Iterator[str]:
    for trainer in _trainers():
        honoured = capabilities(trainer).honours.get(key)
        if honoured:
            values = ", ".join(code(flow_text(value)) for value in honoured.values)
            yield f"**{trainer} takes {values}**: {plain(honoured.why)}."


def commands_page() -> Iterator[str]:
    """Yield the page of every command with its arguments and options."""
    import typer

    root = typer.main.get_command(app)
    yield "# Commands"
    yield ""
    yield (
        "Data goes to stdout, the rest to stderr. Commands that read take `--json`. "
        "`dsforge --install-completion` makes the shell complete commands, recipe keys, presets and runs."
    )
    yield ""
    yield plain(" ".join((root.epilog or "").split()))
    yield from _command(root, typer.Context(root, info_name="dsforge"))


def _command(command: Any, context: Any) -> Iterator[str]:
    import typer

    for name, inner in getattr(command, "commands", {}).items():
        below = typer.Context(inner, info_name=name, parent=context)
        if not hasattr(inner, "commands"):
            yield ""
            yield f"## {below.command_path}"
            yield ""
            yield from (plain(" ".join(part.split())) + "\n" for part in (inner.help or "").split("\n\n"))
            yield f"    {inner.get_usage(below).removeprefix('Usage: ')}"
            rows = [_parameter(parameter) for parameter in inner.params]
            if rows:
                yield from table(("argument or option", "meaning", "default"), rows)
        yield from _command(inner, below)


def _parameter(parameter: Any) -> tuple[str, str, str]:
    is_option = parameter.param_type_name == "option"
    names = [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.display_name_raw]
    told = isinstance(parameter.default, str | int) and not isinstance(parameter.default, bool)
    default = code(str(parameter.default)) if told else ""
    return ", ".join(map(code, names)), plain(parameter.help or ""), default


def _asked(*words: str) -> dict[str, Any]:
    """Return what a command prints under --json."""
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
        status = main([*words, "--json"])
    assert status == 0, words
    found: dict[str, Any] = json.loads(stdout.getvalue())
    return found


def rules_page() -> Iterator[str]:
    """Yield the page of every rule and every other error code."""
    found = _asked("rule")
    yield "# Rules and error codes"
    yield ""
    yield "`dsforge rule CODE` prints these. An error refuses the launch, a warning does not."
    yield ""
    yield "## Rules"
    for rule in found["rules"]:
        yield ""
        yield f"### {rule['code']} {rule['name']}"
        yield ""
        yield f"*{rule['severity']}* — {plain(rule['summary'])}. {plain(rule['why'])}"
    yield ""
    yield "## Errors"
    yield from table(
        ("code", "what is wrong", "why, and what to do"),
        (
            (e["code"], plain(e["summary"]), plain(" ".join(filter(None, (e["why"], e["mend"])))))
            for e in found["errors"]
        ),
    )


def presets_page() -> Iterator[str]:
    """Yield the page of models, sizes and GPUs."""
    found = _asked("presets", "list")
    yield "# Models and GPUs"
    yield ""
    yield (
        "`dsforge presets show NAME` prints a model's shape and its parameters by component. Parameters are "
        "exact; *active* are those that one token passes through. A model without a trainer is planned only."
    )
    yield ""
    yield "## Models"
    rows = (
        (
            code(model["name"]),
            f"{model['parameters']:,}",
            f"{model['active_parameters']:,}" if model["active_parameters"] != model["parameters"] else "",
            ", ".join(model["trainers"]),
            plain(models()[model["name"]].source),
        )
        for model in found["models"]
    )
    yield from table(("model", "parameters", "active", "trainers", "source"), rows)
    yield "## Sizes"
    yield from table(("size", "stands for"), ((code(a), code(b)) for a, b in found["sizes"].items()))
    yield "## GPUs"
    gpus = (
        (
            code(gpu["name"]),
            format_bytes(gpu["memory_bytes"]) if gpu["memory_bytes"] else "",
            ", ".join(f"{name} {rate:g}" for name, rate in gpu["peak_tflops"].items()),
            plain(hardware()[gpu["name"]].source),
        )
        for gpu in found["gpus"]
    )
    yield from table(("gpu", "memory", "dense TFLOP/s", "source"), gpus)
    yield "## Rented machines"
    machines = (
        (code(one["name"]), f"{one['gpus']} x {one['gpu']}", f"{one['network_gb_s']:g}", plain(one["source"]))
        for one in found["clusters"]
    )
    yield from table(("shape", "GPUs", "GB/s a GPU", "source"), machines)
