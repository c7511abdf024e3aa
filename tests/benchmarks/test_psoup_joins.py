"""Structs as one composite find what each finds by itself, with half of the probes; the bars of Figures 8 and 11 that are counts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.psoup.composites import chosen, merged, nested, separate
from benchmarks.baselines.psoup.eddy import Eddy, Factor, JoinFactor, Query, Tuple
from benchmarks.suite.psoup_joins import figure_8, figure_11

RELOPS = st.sampled_from(("=", "<", "<=", ">", ">="))
HOLDS = {"=": np.equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


@given(
    column=st.lists(st.integers(0, 6), max_size=12),
    values=st.lists(st.integers(0, 6), min_size=1, max_size=6),
    shared=st.tuples(RELOPS, st.integers(0, 6)),
    own=RELOPS,
)
def test_every_way_finds_the_pairs_of_loops(column, values, shared, own) -> None:
    held, asked = np.sort(np.array(column, np.int64)), np.array(values, np.int64)
    expected = sorted(
        (struct, row)
        for struct, value in enumerate(values)
        for row, b in enumerate(held.tolist())
        if HOLDS[shared[0]](b, shared[1]) and HOLDS[own](b, value)
    )
    for way in (separate, nested, merged):
        found = way(held, shared, own, asked)
        assert sorted(zip(found.struct.tolist(), found.row.tolist(), strict=True)) == expected


def test_a_composite_probes_once_for_each_struct_and_once_for_the_shared_factor() -> None:
    """G2: two structs against three tuples of S: two searches each, or three together."""
    column, values = np.array([1, 2, 3]), np.array([4, 3])
    assert separate(column, (">", 1), "<", values).probes == 4
    composite = nested(column, (">", 1), "<", values)
    assert composite.probes == 3
    assert sorted(zip(composite.struct.tolist(), composite.row.tolist(), strict=True)) == [
        (0, 1),
        (0, 2),
        (1, 1),
    ]
    assert (merged(column, (">", 1), "<", values).probes, chosen("="), chosen("<")) == (1, "merged", "nested")


def test_a_new_tuple_is_a_composite_of_all_its_queries_in_the_same_way() -> None:
    """The other direction: queries `R.a > S.b + c AND S.b > 1` of many c; the values are what the tuple leaves of each, a - c."""
    offsets, stored, value = (-2, 0, 0, 3, 7), (2, 1, 3, 5, 2), 6
    eddy = Eddy(("R", "S"))
    for number, offset in enumerate(offsets):
        between = (JoinFactor("R", ">", "S", offset),)
        eddy.register(Query(number, frozenset("RS"), (Factor("S", ">", 1),), between))
    for number, b in enumerate(stored):
        eddy.arrive(Tuple("S", number, b))
    eddy.drain()
    before = eddy.counts.own
    eddy.arrive(Tuple("R", 9, value))
    eddy.drain()
    column = np.sort(np.array(stored))
    for way in (nested, merged):
        found = way(column, (">", 1), "<", value - np.array(offsets))
        pairs = sorted(zip(found.struct.tolist(), column[found.row].tolist(), strict=True))
        assert pairs == sorted((query, stored[dict(ids)["S"]]) for query, ids in eddy.results)
    assert eddy.counts.own - before == len(offsets) * len(stored), "the factor on S for each query"
    assert nested(column, (">", 1), "<", value - np.array(offsets)).probes == len(offsets) + 1


def test_counts_of_both_figures_meet_their_bars() -> None:
    for report in (figure_8(0, 3), figure_11(4000, 3)):
        counted = [ratio for ratio in report.ratios if "time" not in ratio.what]
        assert counted
        assert not [str(ratio) for ratio in counted if not ratio.passed]
