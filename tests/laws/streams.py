"""Random streams for the laws: the histories over which every operator must answer rightly.

Values are few and mean: ties, gaps, disorder, NULLs, NaN, infinities, -0.0, negative times, empty epochs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from headrace.reference.history import History, RecordedStream, record
from headrace.schema import BIGINT, DOUBLE, INT, STRING, TIMESTAMP, Field, Schema
from tests.laws.kinds import TICK

SCHEMA = Schema(
    (Field("k", STRING), Field("g", INT), Field("x", BIGINT), Field("y", DOUBLE), Field("at", TIMESTAMP))
)
"""The stream `s` of every generated query: two keys, two measures, an event time; all but the time nullable."""

NAMES = Schema((Field("id", INT), Field("name", STRING)))
"""The relation `names`, joined on `s.g = names.id`; ids repeat and are NULL at times."""


def times(low: int = -6, high: int = 30) -> st.SearchStrategy[int]:
    """Event times around zero: many ties, some a microsecond off a tick."""
    return st.builds(
        lambda tick, off: tick * TICK + off, st.integers(low, high), st.sampled_from((0, 0, 0, 1, -1))
    )


def values() -> st.SearchStrategy[dict[str, Any]]:
    """The columns of a row but its time."""
    return st.fixed_dictionaries(
        {
            "k": st.sampled_from(("a", "b", "c", "", None)),
            "g": st.sampled_from((0, 1, 2, -1, None)),
            "x": st.one_of(st.none(), st.integers(-20, 20), st.sampled_from((2**40 + 1, -(2**40) - 1))),
            "y": st.one_of(
                st.none(),
                st.sampled_from((0.0, -0.0, 0.5, -1.25, 3.0, 0.1, 1e6, math.nan, math.inf, -math.inf)),
            ),
        }
    )


def rows(max_size: int = 24) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Rows of `s` in any order of time."""
    row = st.builds(
        lambda columns, at: {name: columns.get(name, at) for name in SCHEMA.names}, values(), times()
    )
    return st.lists(row, max_size=max_size)


@st.composite
def epochs(
    draw: st.DrawFn, rows_strategy: st.SearchStrategy[list[dict[str, Any]]] | None = None
) -> list[list[dict[str, Any]]]:
    """Rows cut into epochs, some of them empty."""
    drawn = draw(rows() if rows_strategy is None else rows_strategy)
    cuts = sorted(draw(st.lists(st.integers(0, len(drawn)), max_size=4)))
    return [drawn[start:end] for start, end in zip([0, *cuts], [*cuts, len(drawn)], strict=True)]


@st.composite
def recorded(draw: st.DrawFn, *, with_late: bool = True) -> RecordedStream:
    """A recorded stream. Without `with_late` its slack spans all disorder, so that any cut gives the same fates."""
    cut = draw(epochs())
    every = [row["at"] for epoch in cut for row in epoch]
    spread = max(every, default=0) - min(every, default=0)
    slack = draw(st.integers(0, 8)) * TICK if with_late else spread
    return record(cut, "at", slack)


@st.composite
def histories(draw: st.DrawFn, *, with_late: bool = True) -> History:
    """The stream `s` and the relation `names`."""
    pairs = st.fixed_dictionaries(
        {"id": st.sampled_from((0, 1, 2, 7, None)), "name": st.sampled_from(("one", "two", None))}
    )
    return History(
        {"s": draw(recorded(with_late=with_late))}, {"names": tuple(draw(st.lists(pairs, max_size=4)))}
    )


@st.composite
def splits(draw: st.DrawFn, epoch: Sequence[Any]) -> list[Sequence[Any]]:
    """One epoch's rows as the splits that its tasks read, some of them empty."""
    cuts = sorted(draw(st.lists(st.integers(0, len(epoch)), max_size=3)))
    return [epoch[start:end] for start, end in zip([0, *cuts], [*cuts, len(epoch)], strict=True)]
