"""The page that shows cells and families, and what the tests measured of each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from dsforge.ops.verify import TOLERANCE
from tests.support.cells import CELLS, Cell
from tests.support.families import CONFIGS, GRADIENT, LOSS, SHAPES, layered
from tests.support.recipes import ROOT

PAGE = ROOT / "docs" / "reference" / "verified.md"
_HEADER = """\
# Layouts that are proven

Each row is a layout that the tests train with real ranks on a CPU and hold against one process of plain
PyTorch, with [`verify`](../how-to/verify.md): 20 steps from the same weights over the same samples,
gradients clipped in 80% of them, validated three times, dropout of the same entries. The difference is the
largest of any training or validation loss, in nats a token; the tolerance is never loosened. In 16 bits the
one process rounds, too, in another order.

`pytest tests/e2e/test_verify.py --update-matrix` writes this table, which the tests hold against their cells.

"""
_FAMILIES = """
## Families

Each row is a small model of random weights whose loss and gradients the tests hold against those of Hugging
Face's own class on the same text, in fp32: those of the one process above, of the layers that the trainers
named build, and of the class as `transformers`, `fsdp` and `ddp` make it from a recipe. The class that they
are held against is made from a configuration written by hand. The differences are the largest of any of them,
in nats a token, and of any entry of any gradient.

`pytest tests/unit/train/test_families.py --update-matrix` writes this table.

"""
_LAST = ("besides", "largest difference", "tolerance")
_OF_FAMILIES = (
    "family",
    "their class",
    "besides sizes",
    "layers of",
    *("loss", "allowed", "gradient", "allowed"),
)
_SIZES = {"hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "max_positions", "arch"}

Measured = Mapping[str, Sequence[str]]
"""By the name of a row what a test measured."""


def tolerance(cell: Cell) -> float:
    """Return the largest difference that is allowed."""
    return TOLERANCE[cell.columns["precision"]]


def page(differences: Measured, families: Measured) -> str:
    """Return the page; a row that was never measured is left out."""
    columns = [name.replace("_", " ") for name in CELLS[0].columns]
    cells = (_cell(cell, *differences[cell.name]) for cell in CELLS if cell.name in differences)
    shapes = (_family(family, *families[family]) for family in SHAPES if family in families)
    of_cells = _table(("cell", "proves", *columns, *_LAST), cells)
    return _HEADER + of_cells + _FAMILIES + _table(_OF_FAMILIES, shapes)


def _cell(cell: Cell, difference: str) -> Sequence[str]:
    besides = " ".join(f"`{key}={value}`" for key, value in cell.further.items())
    return cell.name, cell.proves, *cell.columns.values(), besides, difference, f"{tolerance(cell):.0e}"


def _family(family: str, loss: str, gradient: str) -> Sequence[str]:
    traits = " ".join(
        f"`{key}={json.dumps(value)}`" for key, value in SHAPES[family].items() if key not in _SIZES
    )
    held = CONFIGS[family]["model_type"], traits, ", ".join(layered(family))
    return family, *held, loss, f"{LOSS:.0e}", gradient, f"{GRADIENT:.0e}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ("---",) * len(head), *rows))


def measured(text: str) -> tuple[Measured, Measured]:
    """Return what a page shows: of cells their difference, of families those of loss and gradient."""
    cells, _, families = text.partition(_FAMILIES)
    return _figures(cells, (-2,)), _figures(families, (-4, -2))


def _figures(table: str, places: Sequence[int]) -> Measured:
    lines = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    return {line[0].strip(): [line[place].strip() for place in places] for line in lines[2:]}


def update(cell: Cell, difference: float) -> None:
    """Write what was measured of a cell into the page."""
    cells, families = _known()
    PAGE.write_text(page({**cells, cell.name: [f"{difference:.1e}"]}, families), "utf-8")


def update_family(family: str, loss: float, gradient: float) -> None:
    """Write by how much a family's loss and gradients differ at most into the page."""
    cells, families = _known()
    PAGE.write_text(page(cells, {**families, family: [f"{loss:.1e}", f"{gradient:.1e}"]}), "utf-8")


def _known() -> tuple[Measured, Measured]:
    return measured(PAGE.read_text("utf-8")) if PAGE.is_file() else ({}, {})
