"""The page of what is proven shows the cells and families that the tests train, and no others."""

from __future__ import annotations

from tests.support.cells import CELLS
from tests.support.families import GRADIENT, LOSS, SHAPES
from tests.support.matrix import PAGE, measured, page, tolerance


def test_the_page_has_exactly_the_cells_and_families():
    text = PAGE.read_text("utf-8")
    cells, families = measured(text)
    assert list(cells) == [cell.name for cell in CELLS]
    assert list(families) == list(SHAPES)
    assert text == page(cells, families)
    for cell in CELLS:
        (difference,) = cells[cell.name]
        assert 0 <= float(difference) <= tolerance(cell), cell.name
    for family, (loss, gradient) in families.items():
        assert (0 <= float(loss) <= LOSS, 0 <= float(gradient) <= GRADIENT) == (True, True), family


def test_every_cell_has_its_name_and_layout():
    assert len({cell.name for cell in CELLS}) == len({tuple(cell.changes()) for cell in CELLS}) == len(CELLS)
