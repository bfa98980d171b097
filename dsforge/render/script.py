"""Fills a launcher's template: what every launch script shares."""

from __future__ import annotations

import re

import jinja2

from dsforge.base import shell
from dsforge.base.resources import folder
from dsforge.plan.types import Plan
from dsforge.plan.words import product
from dsforge.records import environment
from dsforge.render.program import uses_deepspeed

_HERE_ALONE = (
    *(environment.VISIBLE_DEVICES, environment.SSH_ARGUMENTS, environment.RUN),
    *(environment.HOSTFILE, environment.NODE, environment.TOLD, environment.BUNDLE, environment.JOB),
)
RUNS_VARIABLES = tuple(
    value for name, value in vars(environment).items() if name.isupper() and value not in _HERE_ALONE
)
"""Variables by which ranks know of their run."""
PASSED_ON = (
    *("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_HOME", "XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR"),
    *RUNS_VARIABLES,
)
"""Variables that ranks on other hosts need besides the recipe's: how programs are found, and this run's."""

_MODULES = {"all_reduce": "dsforge.train.all_reduce"}
"""What a rank runs that trains nothing, by the plan's trainer."""


def script(launcher: str, plan: Plan, **facts: object) -> str:
    """Return a launcher's script, `templates/launch-LAUNCHER.sh.j2`, for a plan.

    Every value of the recipe passes dsforge.base.shell.quote; `facts` are plain words or quoted already.
    """
    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - shell, not HTML
    )
    layout, directory = plan.layout, plan.checkpoint.dir
    shared: dict[str, object] = {
        "name": comment(plan.name),
        "layout": layout,
        "degrees": product(layout.model_dump()),
        "variables": [
            {"line": f"export {name}={shell.quote(value)}", "why": why}
            for name, value, why in _variables(plan)
        ],
        "secrets": plan.launch.env_from,
        "checkpoint_dir": shell.quote(directory) if directory else None,
        "builtin_vocab": plan.data.builtin_vocab,
        "dsforge": "dsforge",
        "trainer": trainer_word(plan),
        "has_ds_config": uses_deepspeed(plan),
        "passed_on": sorted({*PASSED_ON, *plan.launch.env}),
    }
    return jinja.get_template(f"launch-{launcher}.sh.j2").render({**shared, **facts})


def trainer_word(plan: Plan) -> str:
    """Return what `dsforge.rank.main` is told to start."""
    return "--program" if plan.external else _MODULES.get(plan.trainer, "dsforge.train.main")


def comment(text: str) -> str:
    """Return a text for a comment line: nothing in it may end the line."""
    return re.sub(r"[^A-Za-z0-9 ._-]", "?", text)


def _variables(plan: Plan) -> list[tuple[str, str, str]]:
    """Return (name, value, why) of every variable of the ranks, by name."""
    prefix = "launch.env."
    whys = {d.key.removeprefix(prefix): d.why for d in plan.decisions if d.key.startswith(prefix)}
    return [
        (name, value, whys.get(name, "the recipe's launch.env"))
        for name, value in sorted(plan.launch.env.items())
    ]
