"""What INVOKE returns: a standing query's current answer, from results that are there, and for relations from state.

Sliding windows: the latest closed window; windows of rows: the last of each partition, from state. Streams: their rows.
Relations: R(NOW), the changes committed so far and those that only wait for punctuation, which the operator gives from
its state without a Spark job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from headrace.algebra.query import Bounds, Query, find_window, walk
from headrace.algebra.windows.window import Landmark, TimeSlide
from headrace.operators.base.group_codes import SLOTS
from headrace.operators.base.operator import Operator
from headrace.operators.on_demand.selection import Selection
from headrace.planner.lowering.materialization import asked_later
from headrace.runtime.backfill.completeness import plan_in_force
from headrace.runtime.home.home import Home
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.invoke.answer_caveats import caveats_of
from headrace.runtime.invoke.deferred_window import Invocation
from headrace.runtime.invoke.relation_now import below, changes_now
from headrace.runtime.messages.result_entry import answered
from headrace.runtime.messages.stream_progress import StreamProgress
from headrace.runtime.messages.task_messages import RunRef, StateMessage
from headrace.runtime.plan.epoch_planner import source_of
from headrace.runtime.results import result_log
from headrace.runtime.tasks.state.state_task import latest_windows, peek
from headrace.store.files.filesystem import MissingFile
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, FOREVER, Instant


def answer_to_show(home: Home, operator: Operator, query: Query) -> pa.Table:
    """What INVOKE returns as of the newest epoch: the selected columns, in order.

    A relation that is kept whole is made up once an epoch, and then only handed out.
    """
    if query.emission != "relation" or operator.on_request is not None:
        return _shown(invoke_latest(home, operator, query), operator, query)
    key = str(home.store.root), operator.id, home.latest().epoch
    known = _operator_progress.get(key)
    if known is None or known[0] is not operator:
        known = operator, _shown(invoke_latest(home, operator, query), operator, query)
        if home.latest().epoch == key[2]:
            _operator_progress.put(key, known)
    return known[1]


_operator_progress: Final[Recent[tuple[str, str, int], tuple[Operator, pa.Table]]] = Recent(256)
"""Answers of relations as of an epoch, which never change."""


def _shown(table: pa.Table, operator: Operator, query: Query) -> pa.Table:
    return result_log.visible(result_log.ordered(table, operator.sort, query.schema.names), query)


def invoke_latest(home: Home, operator: Operator, query: Query) -> pa.Table:
    """The same as of the newest epoch. When its files are collected while they are read there is a newer one: that then."""
    while True:
        manifest = home.latest()
        try:
            return invoke(home, manifest, operator, query)
        except MissingFile:
            if home.latest().epoch == manifest.epoch:
                raise


def invoke(
    home: Home, manifest: Manifest, operator: Operator, query: Query, ending: pa.Table | None = None
) -> pa.Table:
    """The current answer in the query's own order, with system columns; what is to be said of it see `answer_caveats`.

    `ending`: what a provisional end of the streams adds to the committed results; the answer is then the one at that end.
    """
    asked = operator.on_request or _while_backfilling(home, manifest, operator, query)
    if asked is not None:
        table = Invocation(home, manifest, asked).answer()
        return result_log.empty(query) if table is None else table
    if operator.id not in manifest.operators:
        return result_log.empty(query)
    table = _stored_answer(home, manifest, operator, query, ending)
    return caveats_of(home, manifest, operator, query, table).on(table)


def _stored_answer(
    home: Home, manifest: Manifest, operator: Operator, query: Query, ending: pa.Table | None
) -> pa.Table:
    """What the query keeps of its answer; with `ending` as of the provisional end of its streams."""
    if query.emission == "relation":
        return _relation_now(home, manifest, operator, query, ending)
    if query.emission == "stream":
        parts = [part.table for part in result_log.epochs_of(home, manifest, operator.id)]
        return _joined(parts if ending is None else [*parts, ending], query)
    window = find_window(query.root)
    assert window is not None
    closed = manifest.operators[operator.id].emitted_to
    if isinstance(window.window, TimeSlide | Landmark):
        latest = _latest_window(home, manifest, operator, query, window.window, closed)
        return result_log.net_rows(latest)
    if operator.keeps_latest:
        return _joined(_latest_of_each(home, manifest, operator), query)
    return _last_emission(home, manifest, operator, query)


def _while_backfilling(home: Home, manifest: Manifest, operator: Operator, query: Query) -> Selection | None:
    """The same query as one that keeps nothing, while the past is not all in the answer that is kept of a window.

    So an answer is never that of a part of the past. None where the answer is whole, or cannot be had otherwise.
    """
    if query.emission != "relation" or not any(isinstance(node, Bounds) for node in walk(query.root)):
        return None
    place = manifest.operators.get(operator.id)
    standing = home.catalog.query(operator.query)
    whole = home.list_of(manifest, f"archive:{operator.stream}").length
    if standing is None or standing.definition.paused or (place is not None and place.replayed >= whole):
        return None
    streams = {stream.name: stream for stream in home.catalog.streams.values()}
    return asked_later(operator.query, query, operator.id, source_of(streams, walk(query.root)))


def _latest_window(
    home: Home,
    manifest: Manifest,
    operator: Operator,
    query: Query,
    window: TimeSlide | Landmark,
    closed: Instant,
) -> pa.Table:
    """The greatest window that ends at or before the punctuation, also when nothing of it is left after HAVING.

    After a stream was ended for good (punctuation without end) it is the last window that answered.
    """
    if closed == BEGINNING:
        return result_log.empty(query)
    if closed == FOREVER:
        return _last_emission(home, manifest, operator, query)
    end = window.bounds((closed - window.anchor) // window.slide)[1]
    return _joined(list(result_log.in_range(home, manifest, operator.id, end, end + 1)), query)


def _last_emission(home: Home, manifest: Manifest, operator: Operator, query: Query) -> pa.Table:
    greatest = BEGINNING
    for _, entry in result_log.retained_entries(home, manifest):
        facts = answered(entry).get(operator.id)
        if facts is not None:
            greatest = max(greatest, facts[2])
    if greatest == BEGINNING:
        return result_log.empty(query)
    return _joined(list(result_log.in_range(home, manifest, operator.id, greatest)), query)


def _latest_of_each(home: Home, manifest: Manifest, operator: Operator) -> list[pa.Table]:
    """The last window of each partition: which one that is, only the state knows, also where HAVING left nothing of it."""
    message = _message(home, manifest, operator)
    found = latest_windows(message, operator) if message is not None else None
    return [found] if found is not None else []


def _joined(tables: Sequence[pa.Table], query: Query) -> pa.Table:
    return pa.concat_tables(tables) if tables else result_log.empty(query)


def _relation_now(
    home: Home, manifest: Manifest, operator: Operator, query: Query, ending: pa.Table | None
) -> pa.Table:
    tables = [result_log.sum_of_expired(home, manifest, operator.id)]
    tables += [part.table for part in result_log.epochs_of(home, manifest, operator.id)]
    tables += uncommitted(home, manifest, operator) if ending is None else [ending]
    found = [table for table in tables if table is not None]
    if not found:
        return result_log.empty(query)
    return result_log.consolidated(pa.concat_tables(found), query.schema.names)


def uncommitted(home: Home, manifest: Manifest, operator: Operator) -> list[pa.Table]:
    """Changes up to NOW, the greatest committed event time, that punctuation has not passed yet."""
    if manifest.plan is not None:
        plan = plan_in_force(home, manifest)
        if below(plan, operator.id):
            told = changes_now(home, manifest, plan, operator.id)
            return [] if told is None else [told]
    message = _message(home, manifest, operator)
    return list(peek(message).values()) if message is not None else []


def _message(home: Home, manifest: Manifest, operator: Operator) -> StateMessage | None:
    """All state up to NOW, for one operator; None before there is any."""
    known = manifest.stream(operator.stream)
    if manifest.plan is None or known.greatest == BEGINNING:
        return None
    closed = manifest.operators[operator.id].emitted_to
    return StateMessage(
        root=str(home.store.root),
        plan=manifest.plan,
        epoch=manifest.epoch + 1,
        task=0,
        low=0,
        high=SLOTS,
        runs=tuple(map(RunRef.of, manifest.state)),
        streams={operator.stream: StreamProgress(known.punctuation, known.greatest)},
        emitted_to={operator.id: closed},
        punctuation={operator.id: max(closed, known.greatest + 1)},
    )
