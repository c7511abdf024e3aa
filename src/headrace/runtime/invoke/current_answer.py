"""The current answer of a query, which INVOKE returns: from committed results, from state, or, where the query stores no
answer or not all of it yet, from the archive (by `deferred_window`).

Sliding windows: the latest closed window; windows of rows: the last of each partition, from state. Streams: their rows.
Relations: R(NOW), the committed changes and those that only wait for punctuation, which the operator computes from
its state without a Spark job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from headrace.algebra.query import Bounds, Query, find_window, walk
from headrace.algebra.windows.window import Landmark, TimeSlide
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import AT, Operator
from headrace.operators.on_demand.selection import Selection
from headrace.planner.lowering.materialization import asked_later
from headrace.runtime.backfill.completeness import plan_in_force
from headrace.runtime.home.home import Home
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.invoke.answer_caveats import caveats_before_first_epoch, caveats_of
from headrace.runtime.invoke.deferred_window import Invocation
from headrace.runtime.invoke.relation_now import (
    changes_now,
    message_up_to_now,
    upstream_operators,
)
from headrace.runtime.messages.result_entry import answered
from headrace.runtime.messages.stream_progress import StreamProgress
from headrace.runtime.messages.task_messages import StateMessage
from headrace.runtime.plan import derived_streams
from headrace.runtime.plan.epoch_planner import source_of
from headrace.runtime.progress.plan_index import index_of
from headrace.runtime.progress.union_progress import committed_now
from headrace.runtime.results import result_log
from headrace.runtime.tasks.state.peek import latest_windows, peek
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, FOREVER, Instant


def displayed_answer(home: Home, operator: Operator, query: Query) -> pa.Table:
    """The answer as of the newest epoch: the selected columns, in order.

    A materialized relation is computed once an epoch, and then cached.
    """
    if query.emission != "relation" or operator.on_request is not None:
        return _shown(answer_at_newest_epoch(home, operator, query), operator, query)
    key, epoch = (str(home.store.root), operator.id), home.latest().epoch
    cached = _answers.get(key)
    if cached is not None and cached.is_of(home, operator, epoch):
        return cached.table
    table = _shown(answer_at_newest_epoch(home, operator, query), operator, query)
    if home.latest().epoch == epoch:
        _answers.put(key, _Cached(home.opening, operator, epoch, table))
    return table


@dataclass(frozen=True, slots=True)
class _Cached:
    """An answer of a relation, which is immutable, as of an epoch."""

    opening: object
    operator: Operator
    epoch: int
    table: pa.Table

    def is_of(self, home: Home, operator: Operator, epoch: int) -> bool:
        """Whether it is the operator's answer in the home as of the epoch."""
        return self.opening is home.opening and self.operator is operator and self.epoch == epoch

    @property
    def size(self) -> int:
        """Bytes that count for it: at least so many that the number of answers has a bound, too."""
        return max(_LEAST_BYTES, self.table.get_total_buffer_size())


_MOST_BYTES: Final = 256 << 20
_LEAST_BYTES: Final = 1 << 20
_answers: Final[Recent[tuple[str, str], _Cached]] = Recent(_MOST_BYTES, lambda cached: cached.size)
"""The last answer of each relation that was asked for, by home and operator."""


def _shown(table: pa.Table, operator: Operator, query: Query) -> pa.Table:
    return result_log.visible(result_log.ordered(table, operator.sort, query.schema.names), query)


def answer_at_newest_epoch(home: Home, operator: Operator, query: Query) -> pa.Table:
    """The answer as of the newest epoch, with system columns."""
    return home.at_newest_epoch(lambda manifest: answer_at(home, manifest, operator, query))


def answer_at(
    home: Home, manifest: Manifest, operator: Operator, query: Query, ending: pa.Table | None = None
) -> pa.Table:
    """The current answer in the query's own order, with system columns and caveats.

    `ending`: what a provisional end of the streams adds to the committed results; the answer is then the one at that end.
    """
    selection = operator.on_request or _while_backfilling(home, manifest, operator, query)
    if selection is not None:
        table = Invocation(home, manifest, selection).answer()
        return result_log.empty(query) if table is None else table
    if operator.id not in manifest.operators:
        caveats = caveats_before_first_epoch(home, manifest, operator, query)
        return caveats.on(result_log.empty(query))
    table = _stored_answer(home, manifest, operator, query, ending)
    return caveats_of(home, manifest, operator, query, table).on(table)


def _stored_answer(
    home: Home, manifest: Manifest, operator: Operator, query: Query, ending: pa.Table | None
) -> pa.Table:
    """The answer from the query's results and state; with `ending` as of the provisional end of its streams."""
    if query.emission == "relation":
        return _relation_now(home, manifest, operator, query, ending)
    if query.emission == "stream":
        parts = [part.table for part in result_log.epochs_of(home, manifest, operator.id)]
        return _concatenated(parts if ending is None else [*parts, ending], query)
    window = find_window(query.root)
    assert window is not None
    emitted_to = manifest.operator(operator.id).emitted_to
    if isinstance(window.window, TimeSlide | Landmark):
        latest = _latest_window(home, manifest, operator, query, window.window, emitted_to)
        return result_log.net_rows(latest)
    if operator.keeps_latest:
        return _concatenated(_latest_of_each(home, manifest, operator), query)
    return _last_emission(home, manifest, operator, query)


def _while_backfilling(home: Home, manifest: Manifest, operator: Operator, query: Query) -> Selection | None:
    """The same query as one without state, while its stored answer of a window lacks a part of the archive.

    So no answer is that of a part of the archive. None where the answer is complete, or cannot be computed otherwise.
    """
    if query.emission != "relation" or not any(isinstance(node, Bounds) for node in walk(query.root)):
        return None
    progress = manifest.find_operator(operator.id)
    catalog_query = home.catalog.query(operator.query)
    end = home.list_of(manifest, f"archive:{operator.stream}").length
    if (
        catalog_query is None
        or catalog_query.definition.paused
        or (progress is not None and progress.replayed >= end)
    ):
        return None
    streams = {stream.name: stream for stream in home.catalog.streams.values()}
    return asked_later(operator.query, query, operator.id, source_of(streams, walk(query.root)))


def _latest_window(
    home: Home,
    manifest: Manifest,
    operator: Operator,
    query: Query,
    window: TimeSlide | Landmark,
    emitted_to: Instant,
) -> pa.Table:
    """The last window that ends at or before the punctuation, also when HAVING leaves no row of it.

    After a stream was sealed it is the last window with results.
    """
    if emitted_to == BEGINNING:
        return result_log.empty(query)
    if emitted_to == FOREVER:
        return _last_emission(home, manifest, operator, query)
    end = window.bounds((emitted_to - window.anchor) // window.slide)[1]
    in_order = _emits_in_order(home, manifest, operator, query)
    rows = result_log.in_range(home, manifest, operator.id, end, end + 1, in_order=in_order)
    return _concatenated(rows, query)


def _emits_in_order(home: Home, manifest: Manifest, operator: Operator, query: Query) -> bool:
    """Whether windows are emitted by their end: they are not emitted again, and do not close group by group."""
    stream = plan_in_force(home, manifest).streams.get(operator.stream)
    return not query.retracts_windows and stream is not None and not derived_streams.promising(stream).groups


def _last_emission(home: Home, manifest: Manifest, operator: Operator, query: Query) -> pa.Table:
    greatest = BEGINNING
    for _, entry in result_log.retained_entries(home, manifest):
        facts = answered(entry, home.store).get(operator.id)
        if facts is not None:
            greatest = max(greatest, facts[2])
    if greatest == BEGINNING:
        return result_log.empty(query)
    return _concatenated(list(result_log.in_range(home, manifest, operator.id, greatest)), query)


def _latest_of_each(home: Home, manifest: Manifest, operator: Operator) -> list[pa.Table]:
    """The last window of each partition, from state: also where HAVING leaves no row of it."""
    message = _message(home, manifest, operator)
    windows = latest_windows(message, operator) if message is not None else None
    return [windows] if windows is not None else []


def _concatenated(tables: Sequence[pa.Table], query: Query) -> pa.Table:
    return pa.concat_tables(tables) if tables else result_log.empty(query)


def _relation_now(
    home: Home, manifest: Manifest, operator: Operator, query: Query, ending: pa.Table | None
) -> pa.Table:
    expired = result_log.sum_of_expired(home, manifest, operator.id)
    emitted = [] if expired is None else [expired]
    emitted += [part.table for part in result_log.epochs_of(home, manifest, operator.id)]
    now = _now_if_passed(home, manifest, operator, at_end=ending is not None)
    if now is not None:
        emitted = [table.filter(pa.array(ints(table, AT) <= now)) for table in emitted]
    changes = [*emitted, *(uncommitted(home, manifest, operator) if ending is None else [ending])]
    if not changes:
        return result_log.empty(query)
    return result_log.consolidated(pa.concat_tables(changes), query.schema.names)


def _now_if_passed(home: Home, manifest: Manifest, operator: Operator, *, at_end: bool) -> Instant | None:
    """NOW, where punctuation has passed it: changes after it are emitted, and are no part of R(NOW). None where it has not.

    At the provisional end (`at_end`) NOW is the same for what reads a source. It moves for what reads results, which end then: None.
    """
    progress, stream = manifest.find_operator(operator.id), manifest.stream(operator.stream)
    if progress is None or manifest.plan is None or progress.emitted_to <= stream.greatest + 1:
        return None
    plan = plan_in_force(home, manifest)
    if at_end and all(source.name != operator.stream for source in index_of(plan).sources):
        return None
    now = committed_now(manifest, plan.streams, operator.stream)
    return now if BEGINNING < now < progress.emitted_to - 1 else None


def uncommitted(home: Home, manifest: Manifest, operator: Operator) -> list[pa.Table]:
    """Changes up to NOW, the maximum committed event time, that punctuation has not passed yet."""
    if manifest.plan is not None:
        plan = plan_in_force(home, manifest)
        if upstream_operators(plan, operator.id):
            changes = changes_now(home, manifest, plan, operator.id)
            return [] if changes is None else [changes]
    message = _message(home, manifest, operator)
    return list(peek(message).values()) if message is not None else []


def _message(home: Home, manifest: Manifest, operator: Operator) -> StateMessage | None:
    """The message with all state up to NOW, for one operator; None without rows."""
    committed = manifest.stream(operator.stream)
    if manifest.plan is None or committed.greatest == BEGINNING:
        return None
    streams = {operator.stream: StreamProgress(committed.punctuation, committed.greatest)}
    return message_up_to_now(home, manifest, streams, [operator.id], committed.greatest)
