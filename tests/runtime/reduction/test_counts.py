"""Shares that follow from counts: those of a count row by row, whatever the cut; and estimates from rows that were kept by them are right on
average, and their intervals as often as they should be, over a thousand seeds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.archive.blocks import Blocks
from headrace.archive.estimates import Sums, Z, of_rows
from headrace.catalog.reductions import Counted
from headrace.runtime.reduction.counts import LEAST, Counts, strata

ROWS = Counted(("k",), 10, rows=3)
ERROR = Counted(("k", "g"), 7, within=0.2, of="x")
ALL = Counted((), 100, rows=2)
DRAWS = 1000


def table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    kinds = {"k": pa.string(), "g": pa.int32(), "x": pa.float64(), "at": pa.int64()}
    return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})


def by_rows(by: Counted, parts: Sequence[tuple[int, Sequence[dict[str, Any]]]]) -> list[list[float]]:
    """The share of each row of each part, counted one by one; before the first number of a part intervals expire."""
    totals: defaultdict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    found = []
    for punctuation, rows in parts:
        for row in rows:
            of_row = totals[_group(by, row)]
            x = 0.0 if not by.of or row["x"] is None else row["x"]
            of_row[0] += 1
            of_row[1] += x
            of_row[2] += x * x
        found.append([_share(by, *totals[_group(by, row)]) for row in rows])
        for group in [group for group in totals if (group[0] + 1) * by.every <= punctuation]:
            del totals[group]
    return found


def _group(by: Counted, row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["at"] // by.every, *(row[name] for name in by.columns))


def _share(by: Counted, rows: float, total: float, squares: float) -> float:
    if by.of:
        wanted = 1.0 if squares == 0 else 1 / (1 + (by.within * total / Z) ** 2 / squares)
    else:
        wanted = by.rows / rows
    share = 1.0
    while share / 2 >= wanted * (1 - 1e-9) and share > LEAST:
        share /= 2
    return share


@given(
    by=st.sampled_from((ROWS, ERROR, ALL)),
    parts=st.lists(
        st.tuples(
            st.integers(-5, 60),
            st.lists(
                st.fixed_dictionaries(
                    {
                        "k": st.sampled_from(("a", "b", None)),
                        "g": st.sampled_from((0, 1, None)),
                        "x": st.sampled_from((None, 0.0, 1.0, -1.0, 2.5, 100.0)),
                        "at": st.integers(-9, 50),
                    }
                ),
                min_size=1,
                max_size=40,
            ),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_shares_are_those_of_a_count_row_by_row(
    by: Counted, parts: list[tuple[int, list[dict[str, Any]]]]
) -> None:
    counts, found = Counts(None), []
    for punctuation, rows in parts:
        part = table(rows)
        counts, shares = counts.with_rows(by, part, part.column("at").to_numpy())
        found.append(shares.tolist())
        counts = counts.since(by, punctuation)
    assert found == by_rows(by, parts)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_of_values_that_are_no_numbers_every_row_is_kept(value: float) -> None:
    part = table([{"k": "a", "g": 0, "x": x, "at": 0} for x in (value, *[1.0] * 500)])
    _, shares = Counts(None).with_rows(ERROR, part, part.column("at").to_numpy())
    assert set(shares.tolist()) == {1.0}


def population() -> tuple[pa.Table, np.ndarray]:
    """Four groups of very different sizes, over three intervals, in four parts."""
    rng = np.random.default_rng(8)
    k = rng.choice(["big", "mid", "few", "rare"], 6000, p=[0.8, 0.15, 0.045, 0.005])
    x = rng.gamma(2.0, 3.0, 6000) * np.where(k == "rare", 40, 1)
    at = np.sort(rng.integers(0, 30, 6000))
    return pa.table({"k": k, "g": pa.array(np.zeros(6000, np.int32)), "x": x, "at": at}), np.repeat(
        np.arange(4), 1500
    )


@pytest.mark.parametrize("by", [Counted(("k",), 10, rows=60), Counted(("k",), 10, within=0.15, of="x")])
def test_a_thousand_estimates_are_right_on_average_and_their_intervals_as_often_as_said(by: Counted) -> None:
    """Of each group and of all rows: a count and a sum, as a question estimates them, by strata of one share."""
    rows, part = population()
    counts, shares = Counts(None), np.zeros(rows.num_rows)
    for number in range(4):
        here = rows.filter(pa.array(part == number))
        counts, shares[part == number] = counts.with_rows(by, here, here.column("at").to_numpy())
    names = ["big", "mid", "few", "rare"]
    k, x = np.array(rows.column("k").to_pylist()), rows.column("x").to_numpy()
    terms = np.stack([np.ones(len(x)), x], axis=1)
    of = strata(shares)
    assert len(of) >= 3
    truth = np.array([[terms[k == name].sum(axis=0) for name in names]])[0]
    values, errors = [], []
    for seed in range(DRAWS):
        blocks = Blocks(seed, 16)
        kept = [has & blocks.within(np.arange(len(x)), share) for share, has in of]
        total = np.array([[terms[has & (k == name)].sum(axis=0) for name in names] for has in kept])
        products = np.array(
            [[terms[has & (k == name)].T @ terms[has & (k == name)] for name in names] for has in kept]
        )
        size, sample = [np.array([float(has.sum()) for has in each]) for each in ([h for _, h in of], kept)]
        totals = of_rows(Sums(size, sample, total, products))
        values.append(totals.value)
        errors.append(Z * np.sqrt(np.einsum("gii->gi", totals.covariance).clip(0)))
    value, error = np.array(values), np.array(errors)
    spread = value.std(axis=0) / np.sqrt(DRAWS)
    assert (np.abs(value.mean(axis=0) - truth) <= 4 * spread + 1e-9 * np.abs(truth)).all()
    covered = (np.abs(value - truth) <= error + 1e-9 * np.abs(truth)).mean(axis=0)
    drawn = spread > 1e-6
    assert drawn.any()
    assert (covered[drawn] >= 0.93).all(), covered
    assert (covered[drawn] <= 0.97).all(), covered
    assert (covered[~drawn] == 1).all()
