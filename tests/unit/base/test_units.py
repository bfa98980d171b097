"""Quantities as people write them."""

from __future__ import annotations

import pytest

from dsforge.base.units import (
    format_bytes,
    format_count,
    format_seconds,
    parse_bytes,
    parse_count,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("1000", 1000),
        (" 7 ", 7),
        ("13B", 13_000_000_000),
        ("13G", 13_000_000_000),
        ("1.5T", 1_500_000_000_000),
        ("2.3M", 2_300_000),  # 2.3 x 1e6 in binary floating point is 2299999.9999999995
        ("1.005K", 1005),
        ("1e6", 1_000_000),
        ("1.5e3", 1500),
        ("1e-3K", 1),
        ("12345678901234567890", 12_345_678_901_234_567_890),
    ],
)
def test_counts(text: str, count: int):
    assert parse_count(text) == count


@pytest.mark.parametrize(
    ("text", "unit", "count"),
    [
        ("4M tokens", "token", 4_000_000),
        ("4m token", "token", 4_000_000),
        ("300B tokens", "token", 300_000_000_000),
        ("1.5e3 samples", "sample", 1500),
        ("1000 steps", "step", 1000),
        ("1000", "step", 1000),
    ],
)
def test_counts_of_something(text: str, unit: str, count: int):
    assert parse_count(text, unit) == count


@pytest.mark.parametrize(
    ("text", "unit"),
    [("4M tokens", "sample"), ("16 steps", "token"), ("4M tokens", None), ("8 samples", "step")],
)
def test_another_things_unit_is_refused(text: str, unit: str | None):
    with pytest.raises(ValueError, match="counts"):
        parse_count(text, unit)


@pytest.mark.parametrize(
    "text",
    ["", "x", "-1", "+1", "1,000", "1_000", "1.0001K", "0.5", "4MM", "4 Mi", "1e", "0x10", "٣", "inf", "nan"],
)
def test_what_is_no_count(text: str):
    with pytest.raises(ValueError, match="is not a"):
        parse_count(text)


@pytest.mark.parametrize("text", ["1e400", "1e-400", "1e99999999999", "9" * 50])
def test_counts_beyond_any_size_are_refused_cheaply(text: str):
    with pytest.raises(ValueError, match="out of range"):
        parse_count(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80GiB", 85_899_345_920),
        ("80GB", 80_000_000_000),
        ("1.5 KiB", 1536),
        ("2TB", 2_000_000_000_000),
        ("3TiB", 3_298_534_883_328),
        ("512MB", 512_000_000),
        ("0.1GB", 100_000_000),
        ("7B", 7),
    ],
)
def test_sizes(text: str, size: int):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["80", "80gb", "80G", "-1GB", "GB", "1e400GB"])
def test_what_is_no_size(text: str):
    with pytest.raises(ValueError, match=r"is not a size|out of range"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15m", 900.0), ("90s", 90.0), ("1h30m", 5400.0), ("2d", 172_800.0), ("0.5h", 1800.0), ("1m1s", 61.0)],
)
def test_durations(text: str, seconds: float):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "15", "15 m", "m", "-5m", "1h 30m", "15M"])
def test_what_is_no_duration(text: str):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_seconds(text)


def test_shown_for_people():
    assert [format_bytes(n) for n in (0, 999, 1000, 38_281_250_000, 2.45e12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "38.3 GB",
        "2.5 TB",
    ]
    assert format_bytes(5e15) == "5000 TB"
    assert [format_count(n) for n in (7, 1500, 124_439_808, 8_030_261_248, 3e11)] == [
        "7",
        "1.5k",
        "124.4M",
        "8.03B",
        "300B",
    ]
    assert [format_seconds(n) for n in (0, 42, 59.6, 185, 7800)] == ["0s", "42s", "1m00s", "3m05s", "2h10m"]
