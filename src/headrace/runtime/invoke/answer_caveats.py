"""What has to be said with an answer: from when on it has every row, how much of the past it is of, what failed in making it.

INVOKE says it in the metadata of the answer's schema, so that it travels with the rows, also into Parquet; the command line
says it in words. An answer that has every row of its window has no remarks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa

from headrace.algebra.query import Ago, Bounds, Query, find_window, walk
from headrace.algebra.windows.window import TimeRange, TimeSlide
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import AT, Operator
from headrace.runtime.backfill.completeness import completeness, plan_in_force
from headrace.runtime.home.home import Home
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, EPOCH, FOREVER, Duration, Instant, render_instant

_COMPLETE_SINCE = b"complete_since"
_PAST_READ = b"past_read_percent"
_FAILED = b"failed_rows"
_REASON = b"failed_reason"


@dataclass(frozen=True, slots=True)
class AnswerCaveats:
    """`complete_since`: of earlier rows in its window the answer may lack some; `BEGINNING`: it lacks none.

    `percent`: so much of the past had been read when a query that is catching up gave it. `failed`: so many rows (or groups)
    were left out because an expression failed on them, the first for `reason`.
    """

    complete_since: Instant = BEGINNING
    percent: int = 100
    failed: int = 0
    reason: str = ""

    def on(self, table: pa.Table) -> pa.Table:
        """The table with these remarks in its schema's metadata; itself when there are none."""
        found: dict[bytes, str] = {}
        if self.complete_since != BEGINNING:
            found[_COMPLETE_SINCE] = render_instant(self.complete_since)
        if self.percent < 100:
            found[_PAST_READ] = str(self.percent)
        if self.failed:
            found |= {_FAILED: str(self.failed), _REASON: self.reason}
        if not found:
            return table
        return table.replace_schema_metadata({**(table.schema.metadata or {}), **found})

    @staticmethod
    def of(table: pa.Table) -> AnswerCaveats:
        """Those that an answer carries."""
        found = {name: value.decode() for name, value in (table.schema.metadata or {}).items()}
        since = found.get(_COMPLETE_SINCE)
        return AnswerCaveats(
            BEGINNING if since is None else _instant(since),
            int(found.get(_PAST_READ, 100)),
            int(found.get(_FAILED, 0)),
            found.get(_REASON, ""),
        )

    def sentences(self, name: str) -> Iterator[str]:
        """For people."""
        if self.complete_since != BEGINNING:
            yield f"{name}: rows before {render_instant(self.complete_since)} are missing from this answer"
        if self.percent < 100:
            yield f"{name}: {self.percent} % of the archive is read, and this answer is as of then"
        if self.failed:
            rows = f"{self.failed:,} row{'' if self.failed == 1 else 's'}"
            yield f"{name}: its expressions failed on {rows}, for instance: {self.reason}; this answer is without them"


def caveats_of(
    home: Home,
    manifest: Manifest,
    operator: Operator,
    query: Query,
    table: pa.Table,
    length: Duration | None = None,
) -> AnswerCaveats:
    """Those on an answer that was made of what a query keeps, with its system columns; of the last `length` of its window alone."""
    progress = home.catalog.query(operator.query)
    if progress is None or progress.operator_id != operator.id or operator.id not in manifest.operators:
        return AnswerCaveats()
    seen = completeness(plan_in_force(home, manifest), manifest, progress)
    since = seen.complete_since
    if since != BEGINNING and _lookback(manifest, operator, query, table, length) >= since:
        since = BEGINNING
    return AnswerCaveats(since, seen.percent if seen.state == "backfilling" else 100)


def _lookback(
    manifest: Manifest, operator: Operator, query: Query, table: pa.Table, length: Duration | None
) -> Instant:
    """The earliest event time that an answer looks at; `BEGINNING` where it looks at all, or only counts rows."""
    node = find_window(query.root)
    greatest = manifest.stream(operator.stream).greatest
    if node is None or query.emission == "stream" or greatest == BEGINNING:
        return BEGINNING
    if isinstance(node.window, TimeSlide):
        end = _end(node.window, manifest.operators[operator.id].emitted_to, table)
        return end if end == BEGINNING else end - (length or node.window.range)
    begin = greatest - (length or node.window.range) if isinstance(node.window, TimeRange) else BEGINNING
    for each in walk(query.root):
        if isinstance(each, Bounds):
            own = each.begin
            begin = max(begin, greatest - own.duration if isinstance(own, Ago) else own)
    return begin


def _end(window: TimeSlide, closed: Instant, table: pa.Table) -> Instant:
    """Where the latest window ended; after the end of a stream that is the last that answered."""
    if table.num_rows:
        return int(ints(table, AT).max())
    if closed in (BEGINNING, FOREVER):
        return BEGINNING
    return window.bounds((closed - window.anchor) // window.slide)[1]


def _instant(text: str) -> Instant:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)
