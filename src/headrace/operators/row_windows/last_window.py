"""What did the last window of each partition answer? Kept for INVOKE, and for ISTREAM and DSTREAM of the next one.

Of queries with ISTREAM or DSTREAM what they told of it is kept as well: that is what INVOKE gives.

At rest: the result rows of that window, beside them its end and its partition. A window that answered nothing leaves a row
of NULLs that is not `__live`, so that no earlier one is taken for the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import Ints, flat, group, ints
from headrace.operators.base.operator import AT, SLOT, WINDOW, Sections
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
    """What rows may read of each window: its start, end and id."""

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
    """The result rows of windows, by their place among `ends`; at least one chunk is needed, if without rows."""
    tables: list[pa.Table] = []
    rejected: list[Rejected] = []
    for windows, columns, failed in chunks:
        table, bad = finish(plan, columns | shown.of(windows, prefix), windows, ends.at[windows], failed)
        tables.append(table)
        rejected += bad
    return pa.concat_tables(tables), tuple(rejected)


def last_of_each(
    ends: Ends, results: pa.Table, slots: Callable[[Sequence[pa.Array], int], np.ndarray]
) -> pa.Table:
    """The rows of the last window of each partition, as they are kept."""
    windows = ints(results, WINDOW)
    last = np.flatnonzero(ends.is_last)
    rows = np.flatnonzero(ends.is_last[windows])
    silent = np.setdiff1d(last, windows[rows])
    nulls = pa.table([pa.nulls(len(silent), field.type) for field in results.schema], schema=results.schema)
    table = pa.concat_tables([results.take(pa.array(rows)), nulls])
    number = pa.array(np.concatenate([windows[rows], silent]))
    keys = [key.take(number) for key in ends.keys]
    live = np.r_[np.ones(len(rows), bool), np.zeros(len(silent), bool)]
    for name, column in (
        (SLOT, pa.array(slots(keys, len(number)))),
        (LIVE, pa.array(live)),
        (UNTIL, pa.array(ends.at).take(number)),
        *((f"{PART}{place}", key) for place, key in enumerate(keys)),
    ):
        table = table.append_column(name, column)
    return table


def newest(kept: pa.Table, partitions: int) -> pa.Table:
    """Of what was kept at several times, the rows of each partition's last window."""
    groups = group(_parts(kept, partitions), kept.num_rows)
    until = ints(kept, UNTIL)
    last = np.full(groups.count, np.iinfo(np.int64).min)
    np.maximum.at(last, groups.codes, until)
    return kept.filter(pa.array(until == last[groups.codes]))


def latest_emitted(runs: Sequence[Sections], emit_mode: EmitMode | None, partitions: int) -> pa.Table | None:
    """What was told of the last window of each partition; None when none has ended."""
    section = LAST if emit_mode is None else LAST_EMITTED
    stored = [run[section] for run in runs if section in run]
    return answers(newest(pa.concat_tables(stored), partitions)) if stored else None


def answers(kept: pa.Table) -> pa.Table:
    """The result rows alone."""
    own = kept.filter(kept.column(LIVE))
    return own.select(
        [name for name in own.column_names if name not in (SLOT, LIVE, UNTIL) and not name.startswith(PART)]
    )


def window_differences(
    ends: Ends, results: pa.Table, kept: Sequence[pa.Table], emit_mode: EmitMode
) -> pa.Table:
    """Each window that closes now against the one before it in its partition."""
    windows = ints(results, WINDOW)
    leaving = np.flatnonzero(~ends.is_last[windows])
    rows, target, signs = [results], [windows, windows[leaving] + 1], [len(windows), len(leaving)]
    picked = [np.arange(len(windows)), leaving]
    if kept:
        before = newest(pa.concat_tables(kept), len(ends.keys))
        first, old = _first_after(ends, before)
        rows.append(answers(before))
        live = ints(before, LIVE)
        place = np.cumsum(live) - 1 + len(windows)
        old = old[live[old]]
        picked.append(place[old])
        target.append(first[old])
        signs[1] += len(old)
    changes = consolidated(
        pa.concat_tables(rows).take(pa.array(np.concatenate(picked))),
        np.concatenate(target),
        np.repeat([1, -1], signs),
        emit_mode,
    )
    place = ints(changes, AT)
    changes = changes.set_column(changes.column_names.index(WINDOW), WINDOW, pa.array(place))
    return changes.set_column(changes.column_names.index(AT), AT, pa.array(ends.at[place]))


def _first_after(ends: Ends, before: pa.Table) -> tuple[Ints, Ints]:
    """For each kept row the first window of its partition that closes now, and which rows have one."""
    keys = [
        pa.concat_arrays([own, key])
        for own, key in zip(ends.keys, _parts(before, len(ends.keys)), strict=True)
    ]
    codes = group(keys, ends.count + before.num_rows).codes
    first = np.full(int(codes.max()) + 1, -1, np.int64)
    first[codes[: ends.count][::-1]] = np.arange(ends.count)[::-1]
    found = first[codes[ends.count :]]
    return found, np.flatnonzero(found >= 0)


def _parts(kept: pa.Table, partitions: int) -> list[pa.Array]:
    return [flat(kept.column(f"{PART}{place}")) for place in range(partitions)]
