"""The page of proven layouts shows the cells that the tests train, and no others."""

from __future__ import annotations

from tests.support.cells import CELLS
from tests.support.matrix import PAGE, differences, page, tolerance


def test_the_page_has_exactly_the_cells():
    text = PAGE.read_text("utf-8")
    shown = differences(text)
    assert list(shown) == [cell.name for cell in CELLS]
    assert text == page(CELLS, shown)
    for cell in CELLS:
        assert 0 <= float(shown[cell.name]) <= tolerance(cell), cell.name


def test_every_cell_has_its_name_and_layout():
    assert len({cell.name for cell in CELLS}) == len({tuple(cell.changes()) for cell in CELLS}) == len(CELLS)
