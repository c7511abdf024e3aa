"""The answer of a query over a recorded history, by which every operator is measured: its windows, revisions,
relation at an instant, changelog, stream, or answer of INVOKE.

Everything is computed from scratch: each window by itself, each relation again at every instant at which it may change.
Answers are lists of (emission instant, row) in output order: instant, ORDER BY, group keys, columns left to right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from headrace.algebra.query import (
    Bounds,
    Emit,
    Filter,
    Join,
    Node,
    Project,
    Query,
    QueryScan,
    RelationScan,
    SemijoinColumn,
    StreamScan,
    UnionAll,
    Windowed,
    walk,
)
from headrace.algebra.windows.window import TimeRange, Unbounded
from headrace.errors import UnsupportedQuery
from headrace.reference.history import History, sources_of
from headrace.reference.relational import Moment, Rejects, answer
from headrace.reference.relations import Relation, event_times, tree
from headrace.reference.values import Row, in_output_order, minus, visible
from headrace.reference.windows import Closing, TimeWindows, row_windows, slides_by_rows, sliding_nodes
from headrace.time import BEGINNING, FOREVER, Instant

Answer = list[tuple[Instant, Row]]


def windows_answer(
    query: Query,
    history: History,
    punctuation: Instant,
    *,
    final: bool = False,
    rejects: Rejects | None = None,
) -> Answer:
    """Every window that punctuation has closed (end <= punctuation; all that hold a row when `final`), each once.

    An ISTREAM, DSTREAM at the root compares each window with the one before it (of its partition).
    """
    moment = _moment(query, history, rejects)
    limit = FOREVER if final else punctuation
    emitted = [
        (now.emitted, row)
        for before, now in _closings(query, moment, limit, punctuation)
        for row in _emitted(query, moment, before, now)
    ]
    return _ordered(query, emitted)


def revisions(
    query: Query, history: History, *, final: bool = False, rejects: Rejects | None = None
) -> list[tuple[int, Instant, int, Row]]:
    """(epoch, emission instant, +1 or -1, row): the changes of the answer of a query WITH REVISIONS over one stream.

    The answer after an epoch is that over the rows so far, of the windows closed so far; an epoch emits the difference to the
    epoch before, window by window. With `final` one epoch more ends the stream.
    """
    (name,) = sources_of(query)
    stream, names = history.streams[name], query.schema.names
    emitted: list[tuple[int, Instant, int, Row]] = []
    before: dict[Instant, list[Row]] = {}
    for epoch in range(1, len(stream.punctuations) + 1 + final):
        recorded = replace(history, streams={**history.streams, name: stream.after(epoch)})
        ended = epoch > len(stream.punctuations)
        answered = windows_answer(query, recorded, recorded.punctuation(query), final=ended, rejects=rejects)
        now: dict[Instant, list[Row]] = {}
        for at, row in answered:
            now.setdefault(at, []).append(row)
        for at in sorted({*before, *now}):
            old, new = before.get(at, []), now.get(at, [])
            emitted += [(epoch, at, -1, row) for row in minus(old, new, names)]
            emitted += [(epoch, at, 1, row) for row in minus(new, old, names)]
        before = now
    return emitted


def relation_at(
    query: Query, history: History, instant: Instant, *, rejects: Rejects | None = None
) -> list[Row]:
    """R(instant): empty before the first row of any of its streams, then the relation of the query's tree."""
    return _shown(query, Relation.of(query, _moment(query, history, rejects)).at(instant))


def changes(
    query: Query, history: History, punctuation: Instant, *, rejects: Rejects | None = None
) -> list[tuple[Instant, int, Row]]:
    """(instant, +1 or -1, row), consolidated per instant, for the instants below the punctuation; -1 comes first."""
    return [
        (at, sign, row)
        for at, before, now in _steps(query, history, punctuation, rejects)
        for sign, gone_or_new in ((-1, _minus(query, before, now)), (1, _minus(query, now, before)))
        for row in _shown(query, gone_or_new)
    ]


def stream_answer(
    query: Query,
    history: History,
    punctuation: Instant,
    *,
    final: bool = False,
    rejects: Rejects | None = None,
) -> Answer:
    """The rows of a stream-valued query at their instants below the punctuation (all when `final`).

    A query that only adds rows, none of which depends on order, emits at commit: all rows so far.
    """
    if sliding_nodes(query):
        return windows_answer(query, history, punctuation, final=final, rejects=rejects)
    limit = FOREVER if final or _only_adds(query.root) else punctuation
    kind = query.root.kind if isinstance(query.root, Emit) else "istream"
    emitted: Answer = []
    for at, before, now in _steps(query, history, limit, rejects):
        match kind:
            case "istream":
                rows = _minus(query, now, before)
            case "dstream":
                rows = _minus(query, before, now)
            case "rstream":
                rows = now if _occurs(query, history, at) else []
        emitted += [(at, row) for row in rows]
    return _ordered(query, emitted)


def invoke(
    query: Query,
    history: History,
    punctuation: Instant,
    now: Instant | None = None,
    *,
    rejects: Rejects | None = None,
) -> list[Row]:
    """The answer of INVOKE: the latest closed window (per partition), R(NOW), or the rows of a stream so far.

    The latest closed time window has the greatest end <= punctuation, whether or not it holds a row.
    """
    at = history.now(query) if now is None else now
    if at is None and sources_of(query):
        return []
    moment = _moment(query, history, rejects)
    if query.emission == "windows":
        latest = {now.series: (before, now) for before, now in _latest(query, moment, punctuation)}
        rows = [row for before, now in latest.values() for row in _emitted(query, moment, before, now)]
        return _shown(query, rows)
    if query.emission == "stream" and not any(isinstance(node, Bounds) for node in walk(query.root)):
        return [row for _, row in stream_answer(query, history, punctuation, rejects=rejects)]
    return _shown(query, Relation.of(query, moment).at(BEGINNING if at is None else at))


# ------------------------------------------------------------------------------------------------- windows that slide


def _closings(
    query: Query, moment: Moment, limit: Instant, punctuation: Instant
) -> Iterable[tuple[Closing | None, Closing]]:
    if slides_by_rows(query):
        return row_windows(query, moment, limit, punctuation)
    return TimeWindows(query, moment, limit, punctuation).closed(vacated=isinstance(query.root, Emit))


def _latest(query: Query, moment: Moment, punctuation: Instant) -> Iterable[tuple[Closing | None, Closing]]:
    if slides_by_rows(query):
        return row_windows(query, moment, punctuation, punctuation)
    windows = TimeWindows(query, moment, punctuation)
    end = windows.next_end(punctuation) - windows.slide
    if punctuation == FOREVER:
        end = max(windows.occupied, default=BEGINNING)
    return (
        []
        if end < min(windows.occupied, default=FOREVER)
        else [(windows.closing(end - windows.slide), windows.closing(end))]
    )


def _emitted(query: Query, moment: Moment, before: Closing | None, now: Closing) -> list[Row]:
    """The rows that a closing adds to the query's stream."""
    rows = _of_window(query, moment, now)
    if not isinstance(query.root, Emit) or query.root.kind == "rstream":
        return rows
    earlier = [] if before is None else _of_window(query, moment, before)
    return _minus(query, rows, earlier) if query.root.kind == "istream" else _minus(query, earlier, rows)


def _of_window(query: Query, moment: Moment, closing: Closing) -> list[Row]:
    if not closing.occupied:
        return []
    return answer(
        tree(query),
        Moment(
            moment.history,
            closing.instant,
            moment.rejects,
            frames=closing.frames,
            empty_groups=query.emit_empty,
            revisions=query.revisions,
            shedding=query.shedding,
        ),
    )


# ------------------------------------------------------------------------------------------- relations at every instant


def _steps(
    query: Query, history: History, limit: Instant, rejects: Rejects | None
) -> Iterable[tuple[Instant, list[Row], list[Row]]]:
    """(instant, R before, R now) for each instant below the limit at which the relation may change."""
    relation = Relation.of(query, _moment(query, history, rejects))
    before: list[Row] = []
    for at in relation.instants:
        if at < limit:
            now = relation.at(at)
            yield at, before, now
            before = now


def _occurs(query: Query, history: History, at: Instant) -> bool:
    """True for RSTREAM over `[NOW]`, which has rows at instants with a row; over other windows alone it never ends."""
    windows = [node for node in walk(query.root) if isinstance(node, Windowed)]
    moments = [node for node in windows if node.window == TimeRange(0)]
    if not moments:
        raise UnsupportedQuery("RSTREAM needs a window with SLIDE, or [NOW]")
    moment = _moment(query, history, None)
    return any(at in event_times(replace(query, root=node), moment) for node in moments)


def _only_adds(node: Node) -> bool:
    """True for selections, projections and joins over all rows so far: answers at commit, in any order of arrival."""
    match node:
        case StreamScan() | QueryScan() | RelationScan():
            return True
        case Windowed(source=source, window=window):
            return isinstance(window, Unbounded) and _only_adds(source)
        case UnionAll(inputs=members):
            return all(map(_only_adds, members))
        case Filter(source=source) | Project(source=source) | SemijoinColumn(source=source):
            return _only_adds(source)
        case Emit(source=source, kind=kind):
            return kind == "istream" and _only_adds(source)
        case Join(left=left, right=right, kind=kind):
            fixed = not any(isinstance(below, StreamScan | QueryScan) for below in walk(right))
            return _only_adds(left) and _only_adds(right) and (kind == "inner" or fixed)
        case _:
            return False


# --------------------------------------------------------------------------------------------------------------- shared


def _moment(query: Query, history: History, rejects: Rejects | None) -> Moment:
    rejects = Rejects() if rejects is None else rejects
    return Moment(history, BEGINNING, rejects, revisions=query.revisions, shedding=query.shedding)


def _minus(query: Query, left: list[Row], right: list[Row]) -> list[Row]:
    return minus(left, right, query.schema.names)


def _shown(query: Query, rows: Iterable[Row]) -> list[Row]:
    names = query.schema.names
    return [visible(row, names) for row in in_output_order(rows, names)]


def _ordered(query: Query, emitted: Answer) -> Answer:
    by_instant = groupby(sorted(emitted, key=lambda pair: pair[0]), key=lambda pair: pair[0])
    return [(at, row) for at, pairs in by_instant for row in _shown(query, (row for _, row in pairs))]
