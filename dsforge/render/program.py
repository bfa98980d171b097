"""`program.json` of a plan, and whether DeepSpeed's configuration belongs to its bundle."""

from __future__ import annotations

from dsforge.catalog.engines.capabilities import capabilities
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.plan.program import asks_for
from dsforge.plan.types import Plan, Program
from dsforge.records.program import ProgramFile


def uses_deepspeed(plan: Plan) -> bool:
    """Tell whether ranks read ds_config.json: trainers on DeepSpeed do, a program that is handed it does."""
    if plan.external is not None:
        return asks_for(plan.external, "bundle")
    return capabilities(plan.trainer).deepspeed


def program_file(plan: Plan, program: Program) -> ProgramFile:
    """Return what each rank of a plan starts."""
    flavour = flavour_of(program.flavour)
    words = enumerate(program.arguments)
    return ProgramFile(
        flavour=program.flavour,
        folder=program.path,
        entry=program.entry,
        arguments=tuple(word.text for word in program.arguments),
        bases={str(index): word.base for index, word in words if word.base is not None},
        patterns=flavour.patterns,
        metrics_rank=plan.layout.world_size - 1 if flavour.printed_by == "last" else 0,
        tokens_per_step=plan.batch.global_size * plan.batch.seq_len,
        eval_samples=None if flavour.takes == "anything" else plan.train.eval_samples or None,
        stubs=(*flavour.removed, *(flavour.stubs if plan.accelerator == "cpu" else ())),
        stand_ins=flavour.stand_ins if plan.accelerator == "cpu" else {},
        configuration=program.configuration,
        configuration_bases=program.configuration_bases,
        configuration_option=flavour.configuration_option,
    )
