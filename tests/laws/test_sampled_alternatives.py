"""Alternatives that lose rows: sums are those of the reference over recorded weights whichever epochs are exact, sketched or sampled, and a
percentile is within its bound of the value at every rank that the sample leaves possible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.archive.blocks import seed_of
from headrace.language.binder.query_binder import bind_query
from headrace.operators.base.batch import Batch
from headrace.operators.time_windows.alternatives import IS_SKETCHED, Alternatives
from headrace.planner.lowering.lower import lower
from headrace.reference.evaluate import windows_answer
from headrace.reference.history import History, StreamRow
from headrace.runtime.tasks.scan.shed_rows import shown_of
from headrace.time import SECOND
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.driving import batch, plain
from tests.laws.test_shedding import CATALOG, close, passed, weighed
from tests.operators.local_driver import drive

Z = 1.959963984540054
LISTS = (
    "COUNT(*) AS n",
    "COUNT(*) AS n, SUM(x) AS total, MIN(x) AS low",
    "COUNT(y) AS n, AVG(x) FILTER (WHERE g = 1) AS mean",
)
CHOICES = ((1.0, 1.0), (1.0, 1.0), (0.0, 1.0), (0.0, 0.5), (0.0, 0.25), (0.0, 0.125))


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, float, int, int, tuple[str, ...]]:
    share = draw(st.sampled_from((0.0, 0.1, 0.5, 0.75, 1.0)))
    window, slide = draw(st.sampled_from(((5, 5), (9, 4), (9, 1), (3, 10))))
    keys = draw(st.sampled_from(((), ("k",), ("g", "k"))))
    within = draw(st.sampled_from((1, 10, 40)))
    grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
    listed = ", ".join(
        (
            *keys,
            f"APPROX_PERCENTILE(x, {share}) WITHIN {within} PERCENT AS mid",
            "ERROR_BOUND(mid) AS bound",
            draw(st.sampled_from(LISTS)),
        )
    )
    text = (
        f"SELECT {listed} FROM s [RANGE {window} SECONDS SLIDE {slide} SECONDS]{grouped} WITH SHEDDING"
        " WITH QOS (sketches 0.9, loss (1 AT 0 PERCENT, 0.5 AT 97 PERCENT))"
    )
    return text, share, window, slide, keys


@given(data=st.data())
def test_sums_are_those_of_the_weights_and_percentiles_within_what_the_sample_leaves_possible(
    data: st.DataObject,
) -> None:
    text, share, window, _, keys = data.draw(texts(), "text")
    query = bind_query(text, CATALOG)
    operator = lower("q", query, "q")
    assert isinstance(operator, Alternatives)
    recorded = passed(data.draw(streams.recorded(), "stream"))
    chosen = [data.draw(st.sampled_from(CHOICES), "shares") for _ in recorded.punctuations]
    stream = weighed(recorded, [seen for _, seen in chosen], lambda row: row.position + (row.epoch << 32))
    cuts = []
    for epoch, shares in enumerate(chosen, start=1):
        rows = [row for row in stream.rows if row.epoch == epoch and row.fate == "accepted"]
        parts = data.draw(streams.splits(data.draw(st.permutations(rows))), "splits")
        cuts.append([marked(part, operator, *shares) for part in parts])
    tasks = [data.draw(st.integers(1, 3), "tasks") for _ in cuts]
    merges = data.draw(st.dictionaries(st.integers(0, 4), st.integers(1, 3), max_size=3), "compactions")
    run = drive(operator, cuts, stream.punctuations, tasks, final=False, compact_after=merges)
    history = History({"s": stream}, {})
    answers = by_group(plain(run.results, query), keys)
    expected = by_group(windows_answer(query, history, history.punctuation(query)), keys)
    assert answers.keys() == expected.keys()
    scale = max((abs(row.values["x"] or 0) for row in stream.rows), default=1)
    for (at, *group), row in answers.items():
        truth = expected[(at, *group)]
        for name in set(query.schema.names) - {"mid", "bound"}:
            assert close(row[name], truth[name], 1e-7 * max(1, scale)), (name, row, truth)
        seen = [
            other
            for other in stream.rows
            if other.fate == "accepted"
            and other.weight
            and at - window * SECOND <= other.at < at
            and [repr(other.values[key]) for key in keys] == group
        ]
        values = [(other.values["x"], other.weight) for other in seen if other.values["x"] is not None]
        exactly = all(chosen[other.epoch - 1] == (1.0, 1.0) for other in seen)
        require_within(row["mid"], row["bound"], values, share, exactly=exactly)


def marked(rows: Sequence[StreamRow], operator: Alternatives, exactly: float, seen: float) -> Batch:
    """The sample of the rows that an epoch with these shares sees."""
    shown = shown_of(batch(rows, some.SCHEMA), seed_of("s"), seen).only(operator.columns)
    marks = pa.repeat(pa.scalar(exactly < 1 or seen < 1), shown.rows)
    return Batch({**shown.columns, IS_SKETCHED: marks}, shown.at, shown.position)


def by_group(rows: Sequence[Any], keys: Sequence[str]) -> dict[tuple[Any, ...], Any]:
    return {(at, *(repr(row[key]) for key in keys)): row for at, row in rows}


def require_within(
    value: float | None,
    bound: float | None,
    values: Sequence[tuple[Any, float]],
    share: float,
    *,
    exactly: bool,
) -> None:
    """The value at each rank that the sample leaves possible is within the bound; ranks outside of the sample make it unknown."""
    if not values:
        assert value is None
        assert bound is None or exactly
        return
    assert value is not None
    ranked = np.repeat([float(x) for x, _ in values], [int(weight) for _, weight in values])
    ranked.sort()
    place = (len(ranked) - 1) * share
    aside = uncertain(values, share)
    least, most = math.floor(place) - aside, math.ceil(place) + aside
    if aside and (least < 0 or most > len(ranked) - 1):
        assert bound is None
        return
    assert bound is not None
    if exactly:
        assert bound == 0
        assert math.isclose(value, float(np.quantile(ranked, share)), rel_tol=1e-9, abs_tol=1e-9)
        return
    if not aside:  # no row is missing: the value is between two neighbours
        assert abs(float(np.quantile(ranked, share)) - value) <= bound + 1e-9 * max(1, abs(value))
        return
    for other in ranked[math.floor(least) : math.ceil(most) + 1]:
        assert abs(other - value) <= bound + 1e-9 * max(1, abs(value))


def uncertain(values: Sequence[tuple[Any, float]], share: float) -> float:
    """By the equations: the greatest variance of the share of rows up to the value that the weights allow."""
    total, most = sum(weight for _, weight in values), max(weight for _, weight in values)
    if most == 1:
        return 0.0
    spread = sum(weight * (weight - 1) for _, weight in values)
    sides = [((1 - share) ** 2, share * total), (share**2, (1 - share) * total)]
    sides.sort(reverse=True)
    first = min(spread, (most - 1) * sides[0][1])
    variance = first * sides[0][0] + (spread - first) * sides[1][0]
    half = Z * Z * most / 2
    return half + math.sqrt(half * half + Z * Z * variance)
