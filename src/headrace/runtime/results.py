"""Reading results: what queries have answered, from manifests and result runs alone. Any process may.

One results run holds the answers of all queries of one state task in one epoch; the manifest's list says which queries
and which emission instants are in it, so a reader opens only what it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa

from headrace.algebra.query import Query, SortKey
from headrace.operators.finish import HIDDEN
from headrace.operators.grouping import flat
from headrace.operators.operator import AT, CHANGE
from headrace.operators.revising import net
from headrace.operators.sort_ranks import sort_rank
from headrace.runtime.home import Home
from headrace.runtime.plans import open_run
from headrace.store.manifest import Manifest
from headrace.time import Instant


@dataclass(frozen=True, slots=True)
class EpochResults:
    """One epoch's result rows of one query, with their system columns.

    `position` is that in the results list after them.
    """

    epoch: int
    table: pa.Table
    position: int


def epochs_of(home: Home, manifest: Manifest, operator: str, start: int = 0) -> Iterator[EpochResults]:
    """Result rows of an operator, epoch by epoch, from entry `start` of the results list on."""
    entries = home.list_of(manifest, "results").iterate(home.store.read, start)
    answered = ((place, entry) for place, entry in entries if operator in entry["queries"])
    for epoch, found in groupby(answered, key=lambda each: each[1]["epoch"]):
        part = list(found)
        tables = [open_run(home.store, entry["name"])[operator] for _, entry in part]
        yield EpochResults(epoch, pa.concat_tables(tables), part[-1][0] + 1)


def in_range(
    home: Home, manifest: Manifest, operator: str, low: Instant, high: Instant | None = None
) -> Sequence[pa.Table]:
    """Result rows with low <= emission instant (< high), newest runs first."""
    found = []
    for _, entry in home.list_of(manifest, "results").iterate(home.store.read, reverse=True):
        facts = entry["queries"].get(operator)
        if facts is None or facts[2] < low or (high is not None and facts[1] >= high):
            continue
        table = open_run(home.store, entry["name"])[operator]
        at = flat(table.column(AT)).to_numpy()
        keep = at >= low if high is None else (at >= low) & (at < high)
        found.append(table if keep.all() else table.filter(pa.array(keep)))
    return found


def ordered(table: pa.Table, sort: Sequence[SortKey], outputs: Sequence[str]) -> pa.Table:
    """Rows by emission instant, what goes before what comes, the query's own order, then columns left to right.

    System columns that only served to order them are gone.
    """
    order = _order(table, sort, outputs)
    kept = table.select([*outputs, *(name for name in (CHANGE, AT) if name in table.column_names)])
    return kept if order is None else kept.take(pa.array(order))


def _order(table: pa.Table, sort: Sequence[SortKey], outputs: Sequence[str]) -> np.ndarray | None:
    """The rows' places in that order; None when they stand in it already."""
    if table.num_rows < 2:
        return None
    keys = [flat(table.column(AT)).to_numpy()]
    if CHANGE in table.column_names:
        keys.append(flat(table.column(CHANGE)).to_numpy())
    for place, key in enumerate(sort):
        name = f"{HIDDEN}{place}"
        if name in table.column_names:
            keys.append(sort_rank(table.column(name), key.descending, key.nulls_first))
    order = np.lexsort(keys[::-1])
    if _has_ties(keys, order):  # ranking every column is dear, and windows of groups hardly ever need it
        keys += [sort_rank(table.column(name), False, True) for name in outputs]
        order = np.lexsort(keys[::-1])
    return order


def _has_ties(keys: Sequence[np.ndarray], order: np.ndarray) -> bool:
    """Whether two neighbours in the order are equal in every key."""
    same = np.ones(len(order) - 1, bool)
    for key in keys:
        ranked = key[order]
        same &= ranked[1:] == ranked[:-1]
    return bool(same.any())


def standing(table: pa.Table) -> pa.Table:
    """The rows that a changelog leaves, at the instants at which they were told; other tables as they are."""
    return net(table).drop_columns([CHANGE]) if CHANGE in table.column_names else table


def visible(table: pa.Table, query: Query, *, changes: bool = False) -> pa.Table:
    """Only the columns the user selected; with `changes` also `__change` and `__at` of what is told as changes."""
    names = list(query.schema.names)
    shown = table.select(names)
    if changes and CHANGE in table.column_names:
        stamp = pa.timestamp("us", tz="UTC")
        shown = shown.append_column(CHANGE, table.column(CHANGE)).append_column(
            AT, table.column(AT).cast(stamp)
        )
    return shown


def empty(query: Query) -> pa.Table:
    """No rows, with the query's columns."""
    return query.schema.arrow().empty_table()
