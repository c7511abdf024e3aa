"""The answer of a query as it was at an earlier instant, from its committed results; and the counts of its results over
time, by which a reader chooses the instant.

Of a relation it is R(t), the sum of its changes up to t (CQL); of sliding windows the last one that ended by t, empty or not, and of
others the last one with results; of a stream its rows up to t. Late rows that revised a window since then are in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.algebra.query import Query, find_window
from headrace.algebra.windows.window import Landmark, TimeSlide
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import AT, Operator
from headrace.runtime.home.home import Home
from headrace.runtime.home.merged_runs import results_of
from headrace.runtime.messages.result_entry import Facts, answered
from headrace.runtime.results import result_log
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, FOREVER, Duration, Instant, render_instant

_READ: Final = 1 << 18
"""Rows whose instants are read for a timeline."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Results by emission instant: `rows[i]` in the i-th `interval` (microseconds) from `first` on, `last` in the last of them."""

    first: Instant
    last: Instant
    interval: Duration
    rows: tuple[int, ...]


def timeline(home: Home, operator: Operator, buckets: int) -> Timeline | None:
    """The retained results of an operator by time; None where there are none.

    Of more than `_READ` rows with several instants in a run, the older ones count at the last instant of their run.
    """
    seen = home.at_newest_epoch(lambda manifest: list(_counted(home, manifest, operator)))
    if not seen:
        return None
    first, last = min(least for least, _, _ in seen), max(int(at.max()) for _, at, _ in seen)
    at, rows = (np.concatenate(columns) for columns in list(zip(*seen, strict=True))[1:])
    interval = max(1, -(-(last - first) // buckets))
    places = np.minimum((at - first) // interval, buckets - 1)
    counts = np.bincount(places, rows, buckets if last > first else 1)
    return Timeline(first, last, interval, tuple(counts.astype(np.int64).tolist()))


def _counted(
    home: Home, manifest: Manifest, operator: Operator
) -> Iterator[tuple[Instant, np.ndarray, np.ndarray]]:
    """Of each run: its least instant, instants, and how many results each has; the newest runs first."""
    read = 0
    for entry, (rows, least, greatest) in _facts(home, manifest, operator):
        if least == greatest or read + rows > _READ:
            yield least, np.array([greatest]), np.array([rows])
        else:
            read += rows
            yield least, *np.unique(ints(results_of(home.store, entry, operator.id), AT), return_counts=True)


def answer_as_of(home: Home, operator: Operator, query: Query, at: Instant) -> pa.Table:
    """The answer at an instant: the selected columns, in the query's order.

    Raises `UserError` for an instant of which results are not retained any more.
    """

    def opened(manifest: Manifest) -> pa.Table:
        _require_retained(home, manifest, operator, at)
        if query.emission != "relation":
            return _last_rows(home, manifest, operator, query, at)
        changes = list(_up_to(home, manifest, operator, at))
        expired = result_log.sum_of_expired(home, manifest, operator.id)
        changes += [] if expired is None else [expired.filter(pa.array(ints(expired, AT) <= at))]
        if not changes:
            return result_log.empty(query)
        return result_log.consolidated(pa.concat_tables(changes), query.schema.names)

    table = home.at_newest_epoch(opened)
    if AT not in table.column_names:
        return table
    return result_log.visible(result_log.ordered(table, operator.sort, query.schema.names), query)


def _require_retained(home: Home, manifest: Manifest, operator: Operator, at: Instant) -> None:
    first = result_log.retained_since(home, manifest, operator.id)
    if at < first:
        raise UserError(
            f"results before {'now' if first == FOREVER else render_instant(first)} are not retained",
            remedy="Choose a later instant, or a longer retain.",
        )


def _facts(home: Home, manifest: Manifest, operator: Operator) -> Iterator[tuple[Mapping[str, Any], Facts]]:
    """Entries with results of an operator, the newest first, and the facts about its rows in each."""
    for _, entry in result_log.retained_entries(home, manifest, reverse=True):
        facts = answered(entry, home.store).get(operator.id)
        if facts is not None:
            yield entry, (facts[0], facts[1], facts[2])


def _last_rows(home: Home, manifest: Manifest, operator: Operator, query: Query, at: Instant) -> pa.Table:
    """Of a stream all rows up to an instant; of windows the rows of the last instant up to it, as revised since."""
    low = BEGINNING if query.emission == "stream" else _last_emission(home, manifest, operator, at)
    if low is None or low < _last_end(home, manifest, operator, query, at):
        return result_log.empty(query)
    tables = list(result_log.in_range(home, manifest, operator.id, low, at + 1))
    return result_log.net_rows(pa.concat_tables(tables)) if tables else result_log.empty(query)


def _last_emission(home: Home, manifest: Manifest, operator: Operator, at: Instant) -> Instant | None:
    """The last instant of results up to another one; only runs in which it may be are opened."""
    last: Instant | None = None
    for entry, (_, least, greatest) in _facts(home, manifest, operator):
        if least > at or (last is not None and greatest <= last):
            continue
        instants = ints(results_of(home.store, entry, operator.id), AT) if greatest > at else None
        newest = greatest if instants is None else int(instants[instants <= at].max())
        last = newest if last is None else max(last, newest)
    return last


def _last_end(home: Home, manifest: Manifest, operator: Operator, query: Query, at: Instant) -> Instant:
    """The end of the last sliding window that ended and was closed by an instant: no row of it may be there. BEGINNING for other windows."""
    node = find_window(query.root)
    window = None if node is None else node.window
    if query.emission == "stream" or not isinstance(window, TimeSlide | Landmark):
        return BEGINNING
    progress = manifest.find_operator(operator.id)
    if progress is None or progress.emitted_to == BEGINNING:
        return BEGINNING
    closed = progress.emitted_to
    if closed == FOREVER:  # sealed: no window is after the last one with results
        closed = _last_emission(home, manifest, operator, FOREVER - 1) or BEGINNING
    return window.bounds((min(at, closed) - window.anchor) // window.slide)[1]


def _up_to(home: Home, manifest: Manifest, operator: Operator, at: Instant) -> Iterator[pa.Table]:
    """The changes of a relation up to an instant, the oldest first."""
    for entry, (_, least, greatest) in reversed(list(_facts(home, manifest, operator))):
        if least <= at:
            table = results_of(home.store, entry, operator.id)
            yield table if greatest <= at else table.filter(pa.array(ints(table, AT) <= at))
