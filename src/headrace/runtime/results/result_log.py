"""Reading of a query's committed results from manifests and result runs, by any process: by epoch or by emission instant,
without what retention has removed, in the order of the contract, and with changelogs added up to net rows.

A results run holds the rows of all queries of one state task in one epoch. The manifest's results list has the queries
and emission instants of each run, so a reader opens only the runs it needs. Older runs are merged (`merging`): their entries are parts of
one file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.query import Query, SortKey
from headrace.algebra.windows.window import CHANGE
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Groups, Ints, flat, group, ints
from headrace.operators.base.operator import AT
from headrace.operators.base.sort_ranks import sort_rank, zero_signs
from headrace.operators.output.changelog import MOVED
from headrace.operators.output.output_stage import HIDDEN
from headrace.operators.time_windows.window_revisions import net
from headrace.runtime.home.deadline import require_time
from headrace.runtime.home.gc_control import collector_disabled
from headrace.runtime.home.home import Home
from headrace.runtime.home.merged_runs import readers_of, results_of
from headrace.runtime.home.run_cache import section_of
from headrace.runtime.messages.result_entry import answered as entry_of
from headrace.runtime.plan.plan_files import load_plan
from headrace.runtime.results.time_merge import Part, instant_batches
from headrace.schema import STAMP
from headrace.store.files.container import PASSING
from headrace.store.files.filesystem import MissingFile
from headrace.store.logs.manifest import Manifest
from headrace.store.maintenance.retention_classes import class_of, expired_of, is_expired
from headrace.time import BEGINNING, FOREVER, Instant

SUMS: Final = "sums"
"""In a manifest's facts: operator → [run, rows] with the net rows of its expired changes."""
_BLOCK: Final = 1 << 13
"""Rows whose keys and order fit into memory that allocators reuse."""
_BATCH_ROWS: Final = 1 << 15
"""Rows of a history that are in memory together when it is read in parts."""


@dataclass(frozen=True, slots=True)
class EpochResults:
    """One epoch's result rows of one query, with their system columns.

    `position` is the one in the results list after them.
    """

    epoch: int
    table: pa.Table
    position: int


def retained_entries(
    home: Home, manifest: Manifest, start: int = 0, *, reverse: bool = False
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(index, entry) of the results list from an index on, without those that retention has removed."""
    expired = expired_of(manifest, "results")
    for index, entry in home.list_of(manifest, "results").iterate(home.store.read, start, reverse=reverse):
        if not is_expired(expired, index, entry):
            yield index, entry


def missed_since(home: Home, manifest: Manifest, operator: str, start: int) -> int:
    """Number of entries from `start` on that retention has removed of an operator.

    Entries below the list's start, and those with many operators, may not be known by operator any more: they count for each
    operator with a retention.
    """
    listed, expired = home.list_of(manifest, "results"), expired_of(manifest, "results")
    missed, end = max(0, listed.start - start), max(expired.values(), default=0)
    if missed and manifest.plan and load_plan(home.store, manifest.plan).retention_of(operator) is None:
        missed = 0
    if start >= end:
        return missed
    for index, entry in listed.iterate(home.store.read, max(start, listed.start)):
        if index >= end:
            break
        missed += is_expired(expired, index, entry) and _may_have(home, entry, operator)
    return missed


def _may_have(home: Home, entry: Mapping[str, Any], operator: str) -> bool:
    """Whether an expired entry has results of an operator; also where that is not known any more."""
    try:
        return operator in entry_of(entry, home.store)
    except MissingFile:
        return True


def epochs_of(home: Home, manifest: Manifest, operator: str, start: int = 0) -> Iterator[EpochResults]:
    """Result rows of an operator, epoch by epoch, from entry `start` of the results list on.

    Raises `DeadlinePassed` once a deadline of this thread's statements has passed.
    """
    entries = retained_entries(home, manifest, start)
    answered = ((index, entry) for index, entry in entries if operator in entry_of(entry, home.store))
    for epoch, of_epoch in groupby(answered, key=lambda indexed: indexed[1]["epoch"]):
        require_time()
        part = list(of_epoch)
        tables = [results_of(home.store, entry, operator) for _, entry in part]
        yield EpochResults(epoch, pa.concat_tables(tables), part[-1][0] + 1)


def retained_results(home: Home, operator: str, since: Instant | None = None) -> list[Part]:
    """The result rows of an operator that the newest epoch retains: at least those at or after `since`."""

    def opened(manifest: Manifest) -> list[Part]:
        by_file: dict[str, list[tuple[Instant, Mapping[str, Any]]]] = {}
        with collector_disabled(when=True):  # a file's index of its queries is many small lists
            for _, entry in retained_entries(home, manifest):
                facts = entry_of(entry, home.store).get(operator)
                if facts is not None and (since is None or facts[2] >= since):
                    by_file.setdefault(entry["name"], []).append((facts[1], entry))
            return [
                Part(min(least for least, _ in part), batches)
                for part in by_file.values()
                for batches in readers_of(home.store, [entry for _, entry in part], operator)
            ]

    return home.at_newest_epoch(opened)


def in_range(
    home: Home,
    manifest: Manifest,
    operator: str,
    low: Instant,
    high: Instant | None = None,
    *,
    in_order: bool = False,
) -> Sequence[pa.Table]:
    """Result rows with low <= emission instant (< high), newest runs first.

    `in_order`: no epoch has emitted anything before what an earlier one has, so the list is read back to the first epoch with an
    earlier instant, and no further.
    """
    tables, last = [], BEGINNING
    for _, entry in retained_entries(home, manifest, reverse=True):
        if entry["epoch"] < last:
            break
        facts = entry_of(entry, home.store).get(operator)
        if facts is not None and facts[1] < low and in_order:
            last = entry["epoch"]
        if facts is None or facts[2] < low or (high is not None and facts[1] >= high):
            continue
        table = results_of(home.store, entry, operator)
        at = ints(table, AT)
        is_in_range = at >= low if high is None else (at >= low) & (at < high)
        tables.append(table if is_in_range.all() else table.filter(pa.array(is_in_range)))
    return tables


def ordered(
    table: pa.Table, sort: Sequence[SortKey], outputs: Sequence[str], block: int = _BLOCK
) -> pa.Table:
    """Rows by emission instant, retractions before insertions, the query's own order, then columns left to right.

    System columns that only served to order them are dropped; changes keep their sign and instant.
    `block` is how many rows of the longest part are ordered at a time. Rows that only moved in the order are no changes.
    """
    if CHANGE in table.column_names:
        is_change = np.abs(ints(table, CHANGE)) < MOVED
        table = table if is_change.all() else table.filter(pa.array(is_change))
    blocks = [_ordered(rows, sort, outputs) for rows in _blocks(table, block)]
    return blocks[0] if len(blocks) == 1 else pa.concat_tables(blocks)


def at_or_after(table: pa.Table, since: Instant | None) -> pa.Table:
    """The rows of an instant not before `since` (None: all)."""
    if since is None:
        return table
    return table.filter(pa.array(ints(table, AT) >= since))


def in_parts(
    parts: Sequence[Part], sort: Sequence[SortKey], outputs: Sequence[str], since: Instant | None = None
) -> Iterator[pa.Table]:
    """The rows of all parts at or after `since`, in the order of `ordered`, as several tables."""
    for rows in instant_batches(parts, _BATCH_ROWS):
        retained = ordered(at_or_after(rows, since), sort, outputs)
        if retained.num_rows:
            yield retained


def _blocks(table: pa.Table, block: int) -> list[pa.Table]:
    """The rows cut at instants into blocks that are ordered one by one, where each part of the table is by instant.

    Each block is ordered in the memory of the previous one. A long history in one step would touch new memory all the time,
    which takes longer than the sort.
    """
    parts = table.to_batches() if table.num_rows > block else []
    instants = [part.column(AT).to_numpy() for part in parts]
    if not parts or any((at[1:] < at[:-1]).any() for at in instants):
        return [table]
    cuts = max(instants, key=len)[block::block]
    starts = np.array([[0, *np.searchsorted(at, cuts)] for at in instants])
    lengths = np.diff(starts, axis=1, append=[[len(at)] for at in instants])
    pieces = (
        [(part, starts[part, at], lengths[part, at]) for part in np.flatnonzero(lengths[:, at])]
        for at in range(lengths.shape[1])
    )
    return [
        pa.Table.from_batches([parts[part].slice(start, length) for part, start, length in piece])
        for piece in pieces
        if piece
    ]


def _ordered(table: pa.Table, sort: Sequence[SortKey], outputs: Sequence[str]) -> pa.Table:
    order = _order(table, sort, outputs)
    columns = table.select([*outputs, *((CHANGE, AT) if CHANGE in table.column_names else ())])
    return columns if order is None else pc.take(columns, pa.array(order), memory_pool=PASSING)


def _order(table: pa.Table, sort: Sequence[SortKey], outputs: Sequence[str]) -> np.ndarray | None:
    """The permutation into that order; None when the rows are in it already."""
    if table.num_rows < 2:
        return None
    keys = [ints(table, AT)]
    if CHANGE in table.column_names:
        keys.append(ints(table, CHANGE))
    for index, key in enumerate(sort):
        name = f"{HIDDEN}{index}"
        if name in table.column_names:
            keys.append(sort_rank(table.column(name), key.descending, key.nulls_first))
    order = _sorted(keys)
    if _has_ties(keys, order):  # ranking every column is expensive, and windows of groups rarely need it
        keys += [sort_rank(table.column(name), False, True) for name in outputs]
        keys += zero_signs(table.column(name) for name in outputs)
        order = _sorted(keys)
    return order


def _sorted(keys: Sequence[np.ndarray]) -> np.ndarray:
    """The order by the first key, ties by the next, and so on; stable.

    Integer keys that fit into 64 bits together are sorted as one: a stable sort of it only merges the runs that state tasks
    have sorted, a tenth of the time of a sort by several keys.
    """
    lows = [int(key.min()) for key in keys if key.dtype.kind == "i"]
    if len(lows) < len(keys):
        return np.lexsort(keys[::-1])
    widths = [int(key.max()) - low + 1 for key, low in zip(keys, lows, strict=True)]
    if math.prod(widths) >= 1 << 63:
        return np.lexsort(keys[::-1])
    packed = np.zeros(len(keys[0]), np.int64)
    for key, low, width in zip(keys, lows, widths, strict=True):
        packed *= width
        packed += key
        packed -= low
    few = math.prod(widths) <= 1 << 16  # numpy uses a radix sort for 16 bits
    return np.argsort(packed.astype(np.uint16) if few else packed, kind="stable")


def _has_ties(keys: Sequence[np.ndarray], order: np.ndarray) -> bool:
    """Whether two neighbours in the order are equal in every key."""
    same = np.ones(len(order) - 1, bool)
    for key in keys:
        ranked = key[order]
        same &= ranked[1:] == ranked[:-1]
    return bool(same.any())


def net_rows(table: pa.Table) -> pa.Table:
    """The rows that a changelog adds up to, at the instants of their insertion; other tables unchanged.

    A retraction whose insertion has expired leaves no row.
    """
    if CHANGE not in table.column_names:
        return table
    remaining = net(table)
    is_insertion = ints(remaining, CHANGE) > 0
    return remaining.filter(pa.array(is_insertion)).drop_columns([CHANGE])


def visible(table: pa.Table, query: Query, *, changes: bool = False) -> pa.Table:
    """Only the columns the user selected; with `changes` also `__change` and `__at` of a changelog."""
    names = list(query.schema.names)
    shown = table.select(names)
    if changes and CHANGE in table.column_names:
        shown = shown.append_column(CHANGE, table.column(CHANGE)).append_column(
            AT, table.column(AT).cast(STAMP)
        )
    return shown


def empty(query: Query) -> pa.Table:
    """No rows, with the query's columns."""
    return query.schema.arrow().empty_table()


def sum_of_expired(home: Home, manifest: Manifest, operator: str) -> pa.Table | None:
    """What a relation's changes add up to that retention has removed: net insertions and retractions, at `BEGINNING`; and changes
    that were after NOW then.
    """
    run_and_rows = manifest.facts.get(SUMS, {}).get(operator)
    return None if run_and_rows is None else section_of(home.store, run_and_rows[0], operator)


def retained_since(home: Home, manifest: Manifest, operator: str) -> Instant:
    """The instant from which on an operator's results are retained; `BEGINNING` if none have expired, `FOREVER` if all have.

    Of a relation not before the last change that is in the sum of those that have expired. After ALTER … SET (retain) older results,
    which are in another class, may be retained longer than later ones: they do not count.
    """
    if not missed_since(home, manifest, operator, 0):
        return BEGINNING
    expired, retained, has_expired = (
        expired_of(manifest, "results"),
        FOREVER,
        _has_expired(home, manifest, operator),
    )
    for index, entry in home.list_of(manifest, "results").iterate(home.store.read, 0):
        if is_expired(expired, index, entry):
            retained = FOREVER if has_expired(entry) else retained
        elif (facts := entry_of(entry, home.store).get(operator)) is not None:
            retained = min(retained, facts[1])
    _, _, last = (*manifest.facts.get(SUMS, {}).get(operator, ("", 0)), BEGINNING)[:3]
    return max(int(retained), int(last))


def _has_expired(home: Home, manifest: Manifest, operator: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether an expired entry had results of an operator; where that is not known any more, whether it is of its class."""
    retention = load_plan(home.store, manifest.plan).retention_of(operator) if manifest.plan else None

    def has(entry: Mapping[str, Any]) -> bool:
        try:
            return operator in entry_of(entry, home.store)
        except MissingFile:
            return class_of(entry) == str(retention)

    return has


def consolidated(changes: pa.Table, outputs: Sequence[str], *, signed: bool = False) -> pa.Table:
    """The bag that a changelog adds up to, with the system columns of each row's last change.

    `signed`: its changes, with retractions of rows that are inserted in another part of the changelog.
    """
    groups, total = _totals(changes, outputs, signed=signed)
    last = np.zeros(groups.count, np.int64)
    np.maximum.at(last, groups.codes, np.arange(changes.num_rows))
    times = np.abs(total) if signed else np.maximum(total, 0)
    bag = changes.take(pa.array(np.repeat(last, times)))
    nothing = np.zeros(bag.num_rows, np.int64)
    signs = np.repeat(np.sign(total), times) if signed else nothing
    for name, values in ((AT, nothing), (CHANGE, signs)):  # they are not part of the order
        bag = bag.set_column(bag.column_names.index(name), name, pa.array(values))
    return bag


def _totals(changes: pa.Table, outputs: Sequence[str], *, signed: bool) -> tuple[Groups, Ints]:
    """Equal rows of a changelog and how often each is there; rows in two places of the order are two.

    A changelog of an older version lacks moves: then rows are equal that look the same.
    """
    hidden = [name for name in changes.column_names if name.startswith(HIDDEN)]
    signs = np.sign(ints(changes, CHANGE))
    for names in ((*outputs, *hidden), outputs):
        groups = group([flat(changes.column(name)) for name in names], changes.num_rows)
        total = np.zeros(groups.count, np.int64)
        np.add.at(total, groups.codes, signs)
        if signed or not hidden or (total >= 0).all():
            break
    return groups, total
