"""Caveats of an answer: since when it has every row, how much of the archive was read, rows that failed, and the keys that a
limited join has left out.

INVOKE returns them in the metadata of the answer's schema, so that they travel with the rows, also into Parquet; the command
line prints them as sentences. An answer with every row of its window has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pyarrow as pa

from headrace.algebra.query import Ago, Bounds, Query, QueryScan, StreamScan, every_node, find_window, walk
from headrace.algebra.windows.window import TimeRange, TimeSlide
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import AT, Operator
from headrace.runtime.backfill.completeness import completeness, plan_in_force
from headrace.runtime.home.home import Home
from headrace.runtime.plan.adaptive.key_samples import samples_by_query
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, EPOCH, FOREVER, Duration, Instant, render_instant

_COMPLETE_SINCE = b"complete_since"
_PAST_READ = b"past_read_percent"
_FAILED = b"failed_rows"
_REASON = b"failed_reason"
_KEYS_LEFT_OUT = b"keys_left_out"


@dataclass(frozen=True, slots=True)
class AnswerCaveats:
    """`complete_since`: earlier rows of its window may be missing from the answer; `BEGINNING`: none is.

    `percent`: the share of the archive that a backfilling query had read. `failed`: rows (or groups) that were left out because
    an expression failed on them, the first for `reason`. `keys_left_out`: what a join with a limit of rows has left out, with the error.
    """

    complete_since: Instant = BEGINNING
    percent: int = 100
    failed: int = 0
    reason: str = ""
    keys_left_out: str = ""

    def on(self, table: pa.Table) -> pa.Table:
        """The table with these caveats in its schema's metadata; unchanged when there are none."""
        metadata: dict[bytes, str] = {}
        if self.complete_since != BEGINNING:
            metadata[_COMPLETE_SINCE] = render_instant(self.complete_since)
        if self.percent < 100:
            metadata[_PAST_READ] = str(self.percent)
        if self.failed:
            metadata |= {_FAILED: str(self.failed), _REASON: self.reason}
        if self.keys_left_out:
            metadata[_KEYS_LEFT_OUT] = self.keys_left_out
        if not metadata:
            return table
        return table.replace_schema_metadata({**(table.schema.metadata or {}), **metadata})

    @staticmethod
    def of(table: pa.Table) -> AnswerCaveats:
        """The caveats in an answer's metadata."""
        metadata = {name: value.decode() for name, value in (table.schema.metadata or {}).items()}
        since = metadata.get(_COMPLETE_SINCE)
        return AnswerCaveats(
            BEGINNING if since is None else _instant(since),
            int(metadata.get(_PAST_READ, 100)),
            int(metadata.get(_FAILED, 0)),
            metadata.get(_REASON, ""),
            metadata.get(_KEYS_LEFT_OUT, ""),
        )

    def sentences(self, name: str) -> Iterator[str]:
        """The caveats as text."""
        if self.complete_since != BEGINNING:
            yield f"{name}: rows before {render_instant(self.complete_since)} are missing from this answer"
        if self.percent < 100:
            yield f"{name}: {self.percent} % of the archive is read, and this answer is as of then"
        if self.failed:
            rows = f"{self.failed:,} row{'' if self.failed == 1 else 's'}"
            yield f"{name}: its expressions failed on {rows}, for instance: {self.reason}; this answer is without them"
        if self.keys_left_out:
            yield f"{name}: {self.keys_left_out}"


def caveats_before_first_epoch(
    home: Home, manifest: Manifest, operator: Operator, query: Query
) -> AnswerCaveats:
    """Caveats of a query that was in no epoch yet: nothing of the archive is read, if its streams have rows."""
    catalog_query = home.catalog.query(operator.query)
    from_now = catalog_query is not None and catalog_query.definition.from_now
    nodes = every_node(query)
    reads_results = any(isinstance(node, QueryScan) and node.query is None for node in nodes)
    streams = {node.name for node in nodes if isinstance(node, StreamScan)}
    read = [name for name in manifest.streams if reads_results or name in streams]
    has_past = any(manifest.stream(name).rows for name in read)
    return AnswerCaveats(percent=0 if has_past and not from_now else 100)


def caveats_of(
    home: Home,
    manifest: Manifest,
    operator: Operator,
    query: Query,
    table: pa.Table,
    length: Duration | None = None,
) -> AnswerCaveats:
    """Caveats of an answer from a query's state, with its system columns; of the last `length` of its window alone."""
    catalog_query = home.catalog.query(operator.query)
    if (
        catalog_query is None
        or catalog_query.operator_id != operator.id
        or operator.id not in manifest.operators
    ):
        return AnswerCaveats()
    seen = completeness(plan_in_force(home, manifest), manifest, catalog_query)
    since = seen.complete_since
    if since != BEGINNING and _lookback(manifest, operator, query, table, length) >= since:
        since = BEGINNING
    sample = samples_by_query(manifest).get(operator.id)
    percent = seen.percent if seen.state == "backfilling" else 100
    return AnswerCaveats(since, percent, keys_left_out="" if sample is None else sample.sentence)


def _lookback(
    manifest: Manifest, operator: Operator, query: Query, table: pa.Table, length: Duration | None
) -> Instant:
    """The earliest event time that an answer covers; `BEGINNING` where it covers all, or only counts rows."""
    node = find_window(query.root)
    greatest = manifest.stream(operator.stream).greatest
    if node is None or query.emission == "stream" or greatest == BEGINNING:
        return BEGINNING
    if isinstance(node.window, TimeSlide):
        end = _end(node.window, manifest.operator(operator.id).emitted_to, table)
        return end if end == BEGINNING else end - (length or node.window.range)
    begin = greatest - (length or node.window.range) if isinstance(node.window, TimeRange) else BEGINNING
    for bounds in walk(query.root):
        if isinstance(bounds, Bounds):
            first = bounds.begin
            begin = max(begin, greatest - first.duration if isinstance(first, Ago) else first)
    return begin


def _end(window: TimeSlide, emitted_to: Instant, table: pa.Table) -> Instant:
    """The end of the latest window; after the end of a stream that of the last window with results."""
    if table.num_rows:
        return int(ints(table, AT).max())
    if emitted_to in (BEGINNING, FOREVER):
        return BEGINNING
    return window.bounds((emitted_to - window.anchor) // window.slide)[1]


def _instant(text: str) -> Instant:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)
