"""A checked recipe becomes a Plan, or one error with every finding."""

from __future__ import annotations

from dataclasses import replace

from dsforge.base.errors import DsforgeError, Finding, Place, Severity
from dsforge.base.exits import ExitCode
from dsforge.catalog.engines.capabilities import capabilities
from dsforge.catalog.hf.training import training_config
from dsforge.catalog.tables import Hardware, find_hardware
from dsforge.layout.hf_config import config_of
from dsforge.layout.shape import Shape, resolve_shape
from dsforge.plan.assemble import assemble
from dsforge.plan.auto import Resolved, resolve_autos
from dsforge.plan.measurements import layer_times
from dsforge.plan.program import engine_of, values_of, with_defaults
from dsforge.plan.search.best import Objective
from dsforge.plan.search.candidate import Candidate
from dsforge.plan.search.legality import CHANGEABLE
from dsforge.plan.search.run import open_keys
from dsforge.plan.settle import settle
from dsforge.plan.types import Plan
from dsforge.recipe.load import LoadedRecipe
from dsforge.recipe.settled import SettledRecipe, left_open
from dsforge.rules.facts import Facts
from dsforge.rules.registry import apply, rules


def examine(loaded: LoadedRecipe, allow: frozenset[str] = frozenset()) -> list[Finding]:
    """Return every finding of a loaded recipe, each with its place."""
    named, _ = with_defaults(loaded.recipe)
    loaded = replace(loaded, recipe=named)
    shape, hardware, problems = look_up(loaded)
    if shape is None or hardware is None:
        return problems
    recipe, _, fault = settle(named, shape, hardware)
    resolved = resolve_autos(recipe, shape, hardware)
    found = _findings(loaded, recipe, shape, hardware, resolved, allow, fault)
    return _or_fault(found, fault, loaded)


def make_plan(
    loaded: LoadedRecipe,
    allow: frozenset[str] = frozenset(),
    *,
    refuse: bool = True,
    objective: Objective = "time",
    best: Candidate | None = None,
) -> Plan:
    """Return the plan of a recipe; DsforgeError (exit 1) carries every error-level finding.

    Codes in `allow` weigh as warnings: for experiments that show what a rule protects from. With
    `refuse` off, findings that leave the numbers of the plan standing are only noted in it. What is `auto`
    becomes best by the objective; `best` is what a search for it has found already.
    """
    named, decisions = with_defaults(loaded.recipe)
    loaded = replace(loaded, recipe=named)
    shape, hardware, problems = look_up(loaded)
    if shape is None or hardware is None:
        raise refusal(problems)
    recipe, chosen, fault = settle(named, shape, hardware, objective, best)
    resolved = resolve_autos(recipe, shape, hardware)
    resolved.decisions += decisions + chosen
    findings = _findings(loaded, recipe, shape, hardware, resolved, allow, fault)
    if not refuse:
        findings = [_weighed(finding) for finding in findings]
    if fault is not None:
        raise refusal(_or_fault(_errors(findings), fault, loaded))
    errors = _errors(findings)
    blocking = errors if refuse else [e for e in errors if not rules()[e.code].plannable]
    if blocking:
        raise refusal(errors)
    return assemble(recipe, shape, hardware, resolved, findings, loaded.model_config)


def _weighed(finding: Finding) -> Finding:
    """Return a finding as it weighs for a plan that is only looked at."""
    harmless = rules()[finding.code].harmless_plan
    return replace(finding, severity=Severity.WARNING) if harmless else finding


def _errors(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def _or_fault(findings: list[Finding], fault: Finding | None, loaded: LoadedRecipe) -> list[Finding]:
    """Return the findings, or why no layout was found, unless rules say that better of the simplest one.

    What is wrong whatever a search may choose comes first, in front of what it did not find.
    """
    if fault is None:
        return findings
    told = replace(fault, place=loaded.place(fault.key))
    errors = [one for one in _errors(findings) if one.code != "DSF160"]
    whatever = [one for one in errors if one.key not in CHANGEABLE]
    if fault.code == "DSF771" and errors:
        left = open_keys(loaded.recipe)
        others = [one for one in findings if one.code != "DSF160"]
        return sorted(others, key=lambda one: (one.severity is not Severity.ERROR, one.key in left))
    return [*whatever, told]


def refusal(errors: list[Finding]) -> DsforgeError:
    """Return the one error that carries several findings, the first of them in front."""
    first = errors[0]
    return DsforgeError(
        first.code,
        first.message,
        first.place,
        first.hint,
        exit_code=ExitCode.FINDINGS,
        findings=tuple(errors[1:]),
    )


def look_up(loaded: LoadedRecipe) -> tuple[Shape | None, Hardware | None, list[Finding]]:
    """Return the shape and the hardware that a recipe names, None with a finding where there is none."""
    recipe = loaded.recipe
    problems = []
    shape = hardware = None
    try:
        found = resolve_shape(recipe.model, recipe.batch.seq_len, loaded.model_config)
        if capabilities(recipe.trainer).hugging_face:
            name = found.name if loaded.model_config is None else str(recipe.model)
            training_config(loaded.model_config or config_of(found), name)
        shape = found
    except DsforgeError as error:
        problems.append(_as_finding(error, "model", loaded.place("model")))
    try:
        hardware = find_hardware(recipe.cluster.gpu)
    except DsforgeError as error:
        problems.append(_as_finding(error, "cluster.gpu", loaded.place("cluster.gpu")))
    if shape is not None and loaded.partition_weights is not None and recipe.parallel.partition_weights:
        key = "parallel.partition_weights"
        try:
            shape = replace(shape, times=layer_times(loaded.partition_weights))
        except DsforgeError as error:
            problems.append(_as_finding(error, key, loaded.place(key)))
            shape = None
    return shape, hardware, problems


def _as_finding(error: DsforgeError, key: str, place: Place) -> Finding:
    return Finding(error.code, Severity.ERROR, error.message, key, place, error.hint)


def _findings(
    loaded: LoadedRecipe,
    recipe: SettledRecipe,
    shape: Shape,
    hardware: Hardware,
    resolved: Resolved,
    allow: frozenset[str],
    fault: Finding | None,
) -> list[Finding]:
    facts = Facts(
        recipe=recipe,
        shape=shape,
        hardware=hardware,
        capabilities=capabilities(engine_of(recipe)),
        values=values_of(recipe, shape, hardware, resolved),
        dp=resolved.dp,
        zero=resolved.zero,
        micro=resolved.micro,
        accumulation_steps=resolved.batch.accumulation_steps if resolved.batch else None,
        steps=resolved.steps,
        total_bytes=resolved.fullest.bytes if resolved.fullest else None,
        fp32_sum_bytes=resolved.fullest.fp32_sums if resolved.fullest else None,
        most_layers=max((stage.count for stage in resolved.stages), default=None),
        undecided=frozenset(left_open(loaded.recipe) if fault is not None else ()),
    )
    found = [replace(finding, place=loaded.place(finding.key)) for finding in apply(facts, allow)]
    order = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}
    # Where another model or program would run, that comes before what its values are.
    return sorted(found, key=lambda finding: (order[finding.severity], not rules()[finding.code].firm))
