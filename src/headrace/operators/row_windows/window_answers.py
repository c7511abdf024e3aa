"""Answers of windows over a partition's rows: the result rows of windows that end, those of each partition's last
window as state (for INVOKE), and the differences between successive windows (ISTREAM and DSTREAM).

Queries with ISTREAM or DSTREAM also store what they emitted of it: that is what INVOKE returns. State rows: the result
rows of that window, with its end and its partition. A window without result rows leaves a row of NULLs that is not
`__live`, so that no earlier one is taken for the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import Ints, flat, group, ints
from headrace.operators.base.operator import AT, QUERY_NUMBER, SLOT, WINDOW, Sections
from headrace.operators.output.changelog import EmitMode, consolidated
from headrace.operators.output.output_stage import Finish, finish
from headrace.operators.row_windows.window_bins import Ends
from headrace.schema import STAMP

Chunk: TypeAlias = tuple[Ints, dict[str, pa.Array], np.ndarray | None]
"""Window numbers, columns, and where an aggregate overflowed."""

LAST: Final = "last"
LAST_EMITTED: Final = "told"
LASTS: Final = (LAST, LAST_EMITTED)
LIVE: Final = "__live"
UNTIL: Final = "__until"
PART: Final = "__part"


@dataclass(frozen=True, slots=True)
class Shown:
    """The columns that rows may read of each window: its start, end and id."""

    start: Ints
    end: Ints
    id: Ints

    def of(self, windows: Ints, prefix: str) -> dict[str, pa.Array]:
        """The columns for rows of these windows."""
        return {
            f"{prefix}window_start": pa.array(self.start[windows]).cast(STAMP),
            f"{prefix}window_end": pa.array(self.end[windows]).cast(STAMP),
            f"{prefix}window_id": pa.array(self.id[windows]),
        }


def finished(
    plan: Finish, prefix: str, ends: Ends, shown: Shown, chunks: Iterable[Chunk]
) -> tuple[pa.Table, tuple[Rejected, ...]]:
    """The result rows of windows, by their index in `ends`; at least one chunk is needed, possibly without rows."""
    tables: list[pa.Table] = []
    rejected: list[Rejected] = []
    for windows, columns, failed in chunks:
        table, bad = finish(plan, columns | shown.of(windows, prefix), windows, ends.at[windows], failed)
        tables.append(table)
        rejected += bad
    return pa.concat_tables(tables), tuple(rejected)


def last_of_each(
    ends: Ends,
    results: pa.Table,
    slots: Callable[[Sequence[pa.Array], int], np.ndarray],
    *,
    by_query: bool = False,
) -> pa.Table:
    """The state rows of the last window of each partition; with `by_query` the first key is the query's number."""
    windows = ints(results, WINDOW)
    last = np.flatnonzero(ends.is_last)
    rows = np.flatnonzero(ends.is_last[windows])
    silent = np.setdiff1d(last, windows[rows])
    nulls = pa.table([pa.nulls(len(silent), field.type) for field in results.schema], schema=results.schema)
    table = pa.concat_tables([results.take(pa.array(rows)), nulls])
    number = pa.array(np.concatenate([windows[rows], silent]))
    keys = [key.take(number) for key in ends.keys]
    live = np.r_[np.ones(len(rows), bool), np.zeros(len(silent), bool)]
    queries = [(QUERY_NUMBER, keys[0])] if by_query else []
    for name, column in (
        (SLOT, pa.array(slots(keys, len(number)))),
        (LIVE, pa.array(live)),
        (UNTIL, pa.array(ends.at).take(number)),
        *((f"{PART}{index}", key) for index, key in enumerate(keys[len(queries) :])),
        *queries,
    ):
        table = table.append_column(name, column)
    return table


def newest(stored: pa.Table) -> pa.Table:
    """The rows of each partition's last window, from state of several epochs."""
    groups = group(_parts(stored), stored.num_rows)
    until = ints(stored, UNTIL)
    last = np.full(groups.count, np.iinfo(np.int64).min)
    np.maximum.at(last, groups.codes, until)
    return stored.filter(pa.array(until == last[groups.codes]))


def latest_emitted(runs: Sequence[Sections], emit_mode: EmitMode | None) -> pa.Table | None:
    """What was emitted of the last window of each partition; None if none has ended."""
    section = LAST if emit_mode is None else LAST_EMITTED
    stored = [run[section] for run in runs if section in run]
    return answers(newest(pa.concat_tables(stored))) if stored else None


def answers(stored: pa.Table) -> pa.Table:
    """The result rows only."""
    live_rows = stored.filter(stored.column(LIVE))
    return live_rows.select(
        [
            name
            for name in live_rows.column_names
            if name not in (SLOT, LIVE, UNTIL, QUERY_NUMBER) and not name.startswith(PART)
        ]
    )


def window_differences(
    ends: Ends, results: pa.Table, stored: Sequence[pa.Table], emit_mode: EmitMode
) -> pa.Table:
    """The differences between each window that closes now and the one before it in its partition."""
    windows = ints(results, WINDOW)
    leaving = np.flatnonzero(~ends.is_last[windows])
    rows, target, signs = [results], [windows, windows[leaving] + 1], [len(windows), len(leaving)]
    picked = [np.arange(len(windows)), leaving]
    if stored:
        before = newest(pa.concat_tables(stored))
        first, old = _first_after(ends, before)
        rows.append(answers(before))
        live = ints(before, LIVE)
        row = np.cumsum(live) - 1 + len(windows)
        old = old[live[old]]
        picked.append(row[old])
        target.append(first[old])
        signs[1] += len(old)
    changes = consolidated(
        pa.concat_tables(rows).take(pa.array(np.concatenate(picked))),
        np.concatenate(target),
        np.repeat([1, -1], signs),
        emit_mode,
    )
    row = ints(changes, AT)
    changes = changes.set_column(changes.column_names.index(WINDOW), WINDOW, pa.array(row))
    return changes.set_column(changes.column_names.index(AT), AT, pa.array(ends.at[row]))


def _first_after(ends: Ends, before: pa.Table) -> tuple[Ints, Ints]:
    """For each stored row the first window of its partition that closes now, and which rows have one."""
    keys = [pa.concat_arrays([ending, key]) for ending, key in zip(ends.keys, _parts(before), strict=True)]
    codes = group(keys, ends.count + before.num_rows).codes
    first = np.full(int(codes.max()) + 1, -1, np.int64)
    first[codes[: ends.count][::-1]] = np.arange(ends.count)[::-1]
    window = first[codes[ends.count :]]
    return window, np.flatnonzero(window >= 0)


def _parts(stored: pa.Table) -> list[pa.Array]:
    """The values of the partition, the query's number first."""
    names = stored.column_names
    numbers = [QUERY_NUMBER] if QUERY_NUMBER in names else []
    return [flat(stored.column(name)) for name in (*numbers, *(n for n in names if n.startswith(PART)))]
