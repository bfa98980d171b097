"""The page that shows the cells and what the test measured of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dsforge.ops.verify import TOLERANCE
from tests.support.cells import Cell
from tests.support.recipes import ROOT

PAGE = ROOT / "docs" / "reference" / "verified.md"
_HEADER = """\
# Layouts that are proven

Each row is a layout that the tests train with real ranks on a CPU and hold against one process of plain
PyTorch, with [`verify`](../how-to/verify.md): 20 steps from the same weights over the same samples,
gradients clipped in 80% of them, validated three times, dropout of the same entries. The difference is the
largest of any training or validation loss, in nats a token; the tolerance is never loosened. In 16 bits the
one process rounds, too, in another order.

`pytest tests/e2e/test_verify.py --update-matrix` writes this page, which the tests hold against their cells.

"""
_LAST = ("besides", "largest difference", "tolerance")
_NAME, _DIFFERENCE = 0, -2


def tolerance(cell: Cell) -> float:
    """Return the largest difference that is allowed."""
    return TOLERANCE[cell.columns["precision"]]


def page(cells: Iterable[Cell], differences: Mapping[str, str]) -> str:
    """Return the page; a cell that was never measured has no row."""
    columns = list(next(iter(cells)).columns)
    rows = [("cell", "proves", *(name.replace("_", " ") for name in columns), *_LAST)]
    rows.append(("---",) * len(rows[0]))
    for cell in cells:
        if cell.name in differences:
            besides = " ".join(f"`{key}={value}`" for key, value in cell.further.items())
            figures = (besides, differences[cell.name], f"{tolerance(cell):.0e}")
            rows.append((cell.name, cell.proves, *cell.columns.values(), *figures))
    return _HEADER + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def differences(text: str) -> dict[str, str]:
    """Return the differences that a page shows, by the name of the cell."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return {line[_NAME].strip(): line[_DIFFERENCE].strip() for line in lines[2:]}


def update(cells: Iterable[Cell], cell: Cell, difference: float) -> None:
    """Write what was measured of a cell into the page."""
    known = differences(PAGE.read_text("utf-8")) if PAGE.is_file() else {}
    PAGE.write_text(page(cells, {**known, cell.name: f"{difference:.1e}"}), "utf-8")
