"""What a recipe says of an external program: the values it reads, its defaults, its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from dsforge.catalog.engines.flavours import flavour_of
from dsforge.catalog.tables import Hardware
from dsforge.external.attention import attention_values
from dsforge.external.mapping import Word as Argument
from dsforge.external.mapping import arguments, passed_values, tree
from dsforge.external.options import option_table
from dsforge.external.placeholders import expand
from dsforge.external.values import recipe_values
from dsforge.layout.shape import Shape
from dsforge.plan.types import Decision, Program, Word
from dsforge.recipe.model import Recipe
from dsforge.recipe.section import Section
from dsforge.recipe.sections import ExternalSection
from dsforge.recipe.settled import SettledRecipe

if TYPE_CHECKING:
    from dsforge.plan.auto import Resolved

_OURS: dict[str, Any] = {"parallel.partition": "parameters", "checkpoint.keep": 3}
"""What `auto` means to a trainer that deals layers and removes checkpoints itself."""


def engine_of(recipe: Recipe) -> str:
    """Return whose data file says what is honoured: a program's flavour, else the trainer."""
    return recipe.external.flavour if recipe.trainer == "external" and recipe.external else recipe.trainer


def program_of(recipe: Recipe) -> ExternalSection | None:
    """Return the section of the program that the ranks run, if they run one."""
    return recipe.external if recipe.trainer == "external" else None


def with_defaults(recipe: Recipe) -> tuple[Recipe, list[Decision]]:
    """Return a recipe with each `auto` that its trainer alone resolves, and why, if otherwise than ours."""
    section = program_of(recipe)
    decisions: list[Decision] = []
    own = flavour_of(section.flavour).defaults if section else {}
    for key in {**_OURS, **own}:
        name, field = key.split(".")
        part = getattr(recipe, name)
        if getattr(part, field) != "auto":
            continue
        value = own[key].value if key in own else _OURS[key]
        recipe = _resolved(recipe, name, _resolved(part, field, value))
        if key in own:
            decisions.append(Decision(key=key, value=value, why=own[key].why))
    return recipe, decisions


S = TypeVar("S", bound=Section)


def _resolved(section: S, field: str, value: Any) -> S:
    """Return a section with one value resolved; what the user has set stays told from what was not."""
    copy = section.model_copy(update={field: value})
    if field not in section.model_fields_set:
        copy.model_fields_set.discard(field)
    return copy


def values_of(recipe: SettledRecipe, shape: Shape, hardware: Hardware, resolved: Resolved) -> dict[str, Any]:
    """Return everything the recipe says by name, and what is passed on as `argument.*`."""
    values = recipe_values(
        recipe,
        shape,
        hardware,
        dp=resolved.dp,
        zero=resolved.zero,
        micro=resolved.micro,
        accumulation_steps=resolved.batch.accumulation_steps if resolved.batch else None,
        steps=resolved.steps,
        eval_samples=resolved.eval_samples,
    )
    section = program_of(recipe)
    if section is not None and flavour_of(section.flavour).takes != "anything":
        values |= passed_values(section.arguments, option_table(section.flavour))
        values |= attention_values(values)
    return values


def program(section: ExternalSection, values: dict[str, Any]) -> Program:
    """Return the program with its whole argument list or configuration."""
    flavour = flavour_of(section.flavour)
    entry = section.entry or flavour.entry
    assert entry is not None, "refused by DSF142"
    configuration: dict[str, Any] | None = None
    bases: dict[str, str] = {}
    words: list[Argument] = []
    if flavour.takes == "options":
        words = arguments(flavour, values, section.arguments)
    elif flavour.takes == "configuration":
        configuration, bases = tree(flavour, values, section.arguments)
    else:
        words = list(expand(section.arguments, values))
    return Program(
        flavour=flavour.name,
        path=section.path,
        entry=entry,
        arguments=tuple(Word(text=word.text, base=word.base) for word in words),
        configuration=configuration,
        configuration_bases=bases,
    )


def asks_for(program: Program, base: str) -> bool:
    """Tell whether an argument of a program, or its configuration, is a path from a place of the run."""
    return base in {*(word.base for word in program.arguments), *program.configuration_bases.values()}
