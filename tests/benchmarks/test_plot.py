"""Pictures are drawn by a library, can be read, and have what they should on their axes."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from benchmarks import plot
from benchmarks.charts import Bar, Bars, Curve, Curves, Grid
from benchmarks.suite import queries

CURVES = Curves(
    "A < B", ("across", "up"), [Curve("a & b", [1, 10, 100], [5, 5, 1], "ours")], logarithmic=(True, True)
)


def drawn(chart) -> str:
    pytest.importorskip("matplotlib", reason="of the optional dependencies bench")
    image = plot.svg(chart)
    assert ET.fromstring(image).tag.endswith("svg")
    assert image == plot.svg(chart)
    return " ".join(
        "".join(part.itertext()) for part in ET.fromstring(image).iter() if part.tag.endswith("text")
    )


def test_bars_have_their_labels_values_and_unit() -> None:
    words = drawn(Bars("Rates", "M rows/s", [Bar("one & all", 3.25, "ours"), Bar("other", 1.0, "theirs")]))
    assert all(word in words for word in ("Rates", "one & all", "3.25", "M rows/s"))


def test_curves_have_their_axes_and_a_legend() -> None:
    words = drawn(CURVES)
    assert all(word in words for word in ("A < B", "across", "up", "a & b"))


def test_charts_beside_each_other_are_all_in_the_picture() -> None:
    bars = Bars("Third", "MB", [Bar("x", 2.0, "yardstick")], logarithmic=True)
    words = drawn(Grid("All & more", [CURVES, CURVES, bars]))
    assert words.count("A < B") == 2
    assert "Third" in words
    assert "All & more" in words


def test_the_number_of_queries_is_a_logarithmic_axis_with_a_line_for_each_way() -> None:
    chart = queries.lines({entry: 1e6 / entry.queries for entry in (*queries.OURS, *queries.RIVALS)})
    assert chart.logarithmic == (True, True)
    lines = {curve.label: list(curve.x) for curve in chart.drawn}
    assert lines["headrace"] == [1, 10, 100, 1000, 10_000]
    assert lines["polars, conditional"] == [1, 10, 100, 1000]
    assert {"flink, shared", "spark, join", "duckdb, join"} <= lines.keys()
    colours = plot._colours([curve.kind for curve in chart.drawn])
    assert len(set(colours)) == len(colours)
    words = drawn(chart)
    assert "flink, shared" in words
