"""Bars in the terminal: as long as what they stand for, inside the width, told apart without colours."""

from __future__ import annotations

import pytest

from dsforge.cli import output

LEGEND = dict(zip("wgoabcd", ("weights", "gradients", "optimizer", "a", "b", "c", "d"), strict=True))


def drawn(capsys: pytest.CaptureFixture[str], whole: int, mark: int | None, **parts: int) -> str:
    output.bars([("stage 0", parts, "figure")], LEGEND, whole, mark)
    first, legend = capsys.readouterr().out.splitlines()
    assert legend == "  " + ", ".join(f"{letter} {name}" for letter, name in LEGEND.items())
    return first


def test_parts_are_as_long_as_they_are(capsys: pytest.CaptureFixture[str]):
    shown = drawn(capsys, 80, None, w=20, g=40)
    bar = shown.removeprefix("  stage 0  ").removesuffix("  figure")
    assert len(shown) <= 100
    assert bar.count("w") * 3 == pytest.approx(len(bar) * 3 * 20 / 80, abs=3)
    assert bar.count("g") == pytest.approx(len(bar) * 40 / 80, abs=1)
    assert bar == "w" * bar.count("w") + "g" * bar.count("g") + " " * bar.count(" ")


def test_the_capacity_stands_at_its_place_even_where_it_is_exceeded(capsys: pytest.CaptureFixture[str]):
    over = drawn(capsys, 160, 80, w=160).removeprefix("  stage 0  ").removesuffix("  figure")
    assert over.count("w") == len(over) - 1
    assert abs(over.index("|") - len(over) / 2) <= 1
    under = drawn(capsys, 80, 80, w=40).removeprefix("  stage 0  ").removesuffix("  figure")
    assert under.rstrip().endswith("|")
    assert under.index("|") > under.count("w")


def test_colours_are_for_terminals(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    plain = drawn(capsys, 80, 80, w=40, g=10)
    assert "\x1b" not in plain
    monkeypatch.setattr(output, "_color", lambda _stream: True)
    painted = drawn(capsys, 80, 80, w=40, g=10)
    assert "\x1b[30;44mw\x1b[0m" in painted
    assert "".join(painted.split("\x1b[0m")).replace("\x1b[30;44m", "").replace("\x1b[30;46m", "") == plain
