"""What a plan's argument list says otherwise than the command line that it was made from."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from dsforge.catalog.engines.flavours import flavour_of
from dsforge.external.options import read
from dsforge.foreign.findings import shown
from dsforge.foreign.imports import Left
from dsforge.foreign.programs.arguments import Arguments, as_value, default_of
from dsforge.plan.types import Program


def differences(arguments: Arguments, program: Program, dealt_with: AbstractSet[str]) -> Iterator[Left]:
    """Yield each option that the new command line has otherwise, unless it is dealt with already.

    Paths and what the flavour leaves free are not compared.
    """
    flavour, table = flavour_of(arguments.flavour), arguments.table
    given, _ = read([word.text for word in program.arguments], table)
    now = {one.option.dest: as_value(one) for one in given}
    apart = {table[row.option].dest for row in flavour.rows if row.base or row.pairs or row.free}
    apart |= {table[name].dest for name in dealt_with if name in table}
    for dest, one in arguments.said.items():
        default = default_of(table[one.option])
        after = now.get(dest, default)
        if dest not in apart and not one.is_open and after != one.value and one.value is not None:
            why = f"a default that the recipe's run has otherwise: {shown(after)}"
            if one.given:
                why = f"the recipe's run has {shown(after)}"
            yield Left(one.option, shown(one.value), why, one.place)
