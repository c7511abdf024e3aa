"""The rows of a query's relation at one moment, computed from scratch, node by node of its tree; and the rows of a
stream below its window.

A `Moment` is an instant, or the closing of a sliding window with the rows that it holds. Rows on which an
expression fails become failed rows in `Rejects`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.algebra.expressions.approximation import counted
from headrace.algebra.expressions.correlated import depends_on
from headrace.algebra.expressions.expression import Expression
from headrace.algebra.expressions.series import AT, POSITION
from headrace.algebra.expressions.shedding_estimates import PARTS, WEIGHT
from headrace.algebra.query import (
    Aggregate,
    Ago,
    Bounds,
    Distinct,
    Filter,
    Join,
    Node,
    Project,
    Query,
    QueryScan,
    RelationScan,
    Revisions,
    SemijoinColumn,
    StreamScan,
    Top,
    UnionAll,
    Windowed,
    walk,
)
from headrace.algebra.windows.window import Changing, Rows, TimeRange, Unbounded, slides
from headrace.dataclass import dataclass
from headrace.errors import UnsupportedQuery
from headrace.reference.aggregate import aggregate
from headrace.reference.conversion import RowError
from headrace.reference.history import Fate, History, source_of
from headrace.reference.scalar import evaluate, holds
from headrace.reference.shedding import Weighed
from headrace.reference.values import (
    ORDER,
    Row,
    columns_key,
    identity,
    in_output_order,
    row_identity,
    sort_key,
    unsigned,
)
from headrace.time import Instant

_FATES: Mapping[str, tuple[Fate, ...]] = {"rows": ("accepted",), "late": ("late",), "rejects": ("rejected",)}


@dataclass(slots=True)
class Rejects:
    """The failed rows, each once, with the reason."""

    rows: dict[Hashable, tuple[Row, str]] = field(default_factory=dict)

    def survivors(self, rows: Iterable[Row], change: Callable[[Row], Row | None]) -> list[Row]:
        """The results of `change`: None drops a row, `RowError` makes it a failed row."""
        results = []
        for row in rows:
            try:
                changed = change(row)
            except RowError as error:
                places = [name for name in row if name.startswith("#")]
                same = row_identity(row, places or [name for name in row if name != ORDER])
                self.rows.setdefault((same, str(error)), (row, str(error)))
            else:
                results += [] if changed is None else [changed]
        return results


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows of one sliding window, and its bounds; a landmark window has no start."""

    rows: tuple[Row, ...]
    start: Instant | None
    end: Instant
    id: int


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant over a history. `frames`: the window that has just closed, for each node whose window slides.

    `empty_groups`: an aggregate without keys has its row also without input rows (always so at an instant).
    """

    history: History
    instant: Instant
    rejects: Rejects
    frames: Mapping[Windowed, Frame] = field(default_factory=dict)
    empty_groups: bool = True
    revisions: Revisions | None = None
    within: tuple[Instant, Instant] | None = None
    shedding: bool = False
    held: Mapping[Windowed, list[Row]] = field(default_factory=dict)
    """The rows of each relation that is read, at that instant."""


def stream_rows(node: Node, moment: Moment) -> list[Row]:
    """All rows of a stream as recorded, in its order, after the filters below its window."""
    match node:
        case StreamScan() | QueryScan():
            stream = moment.history.streams[source_of(node)]
            fates = _FATES[node.channel] if isinstance(node, StreamScan) else _FATES["rows"]
            if moment.revisions is not None and fates == ("accepted",):
                rows = stream.revised(moment.revisions.within)
            else:
                rows = stream.ordered(fates)
            if moment.shedding:
                rows = [row for row in rows if row.weight]
            weight = f"{node.alias}.{WEIGHT}"
            placed = [_placed(row.values, node, row.at, row.position) | {weight: row.weight} for row in rows]
            return _by_time(placed, node) if isinstance(node, QueryScan) and node.time is not None else placed
        case UnionAll():
            return _united(node, moment)
        case Filter(source=source, predicate=predicate):
            return moment.rejects.survivors(stream_rows(source, moment), _passing(predicate))
        case _:
            raise UnsupportedQuery(
                f"a window is taken over a stream and its filters, not over {type(node).__name__}"
            )


def _by_time(rows: list[Row], node: QueryScan) -> list[Row]:
    """The rows at the instants that a column of theirs has."""
    column = f"{node.alias}.{node.time}"
    placed = [row | {_order(node): (row[column], position_of(row, node))} for row in rows]
    return sorted(placed, key=lambda row: row[_order(node)])


def _united(node: UnionAll, moment: Moment) -> list[Row]:
    """The rows of a union under the names of its first input, by event time, then input, then position."""
    rows: list[Row] = []
    for number, member in enumerate(node.inputs):
        for row in stream_rows(member, moment):
            values = (row[name] for name in member.schema.names)
            at, position = row[_order(member)]
            rows.append(
                _placed(dict(zip(node.table.names, values, strict=True)), node, at, number * 2**58 + position)
            )
    return sorted(rows, key=lambda row: row[_order(node)])


def _placed(
    values: Mapping[str, Any], node: StreamScan | QueryScan | UnionAll, at: Instant, position: int
) -> Row:
    places = {_order(node): (at, position), f"{node.alias}.{AT}": at, f"{node.alias}.{POSITION}": position}
    return _named(values, node) | places


def _order(node: StreamScan | QueryScan | UnionAll | Windowed) -> str:
    return f"#{node.alias}"


def time_of(row: Row, node: StreamScan | QueryScan | UnionAll | Windowed) -> Instant:
    """The event time of a row of that stream."""
    return int(row[_order(node)][0])


def position_of(row: Row, node: StreamScan | QueryScan | Windowed) -> int:
    """The position of a row in its stream, in order of arrival."""
    return int(row[_order(node)][1])


def partitions(rows: Iterable[Row], keys: tuple[Expression, ...], rejects: Rejects) -> list[list[Row]]:
    """The rows of each partition in order; one partition without keys."""
    parts: dict[Hashable, list[Row]] = {}

    def assign(row: Row) -> None:
        parts.setdefault(tuple(identity(evaluate(key, row)) for key in keys), []).append(row)

    rejects.survivors(rows, assign)
    return list(parts.values())


def answer(node: Node, moment: Moment) -> list[Row]:
    """The rows of the node's relation at the moment, in any order."""
    match node:
        case Windowed() | StreamScan() | QueryScan() | UnionAll():
            return _held(node, moment)
        case RelationScan():
            return [_named(row, node) for row in moment.history.relations[node.name]]
        case Bounds(source=source, begin=begin, end=end):
            within = (_bound(begin, moment), _bound(end, moment))
            return answer(source, replace(moment, within=within))
        case Filter(source=source, predicate=predicate):
            return moment.rejects.survivors(answer(source, moment), _passing(predicate))
        case Join():
            return _join(node, moment)
        case SemijoinColumn():
            rights = answer(node.right, moment)
            return moment.rejects.survivors(
                answer(node.source, moment), lambda row: row | {node.name: _is_member(node, row, rights)}
            )
        case Aggregate():
            return _aggregate(node, moment)
        case Project(source=Top() as top):
            return _first(_projected(node, _ranked(top, moment), moment), node, top.limit)
        case Project(source=source):
            return _projected(node, answer(source, moment), moment)
        case Distinct(source=source):
            names = node.schema.names
            rows = in_output_order(answer(source, moment), names)
            firsts = {row_identity(row, names): row for row in reversed(rows)}.values()
            return [{name: unsigned(value) for name, value in row.items()} for row in firsts]
        case Top():
            return _first(_ranked(node, moment), node, node.limit)
        case _:
            raise UnsupportedQuery("a relation-to-stream operator is allowed only at the top of a query")


def _held(node: Windowed | StreamScan | QueryScan | UnionAll, moment: Moment) -> list[Row]:
    """The rows in a window at the moment; in a bare stream all rows so far."""
    source = node.source if isinstance(node, Windowed) else node
    window = node.window if isinstance(node, Windowed) else Unbounded()
    added: Row = {}
    if isinstance(node, Windowed) and isinstance(window, Changing):
        return moment.held[node]
    if isinstance(node, Windowed) and slides(window):
        frame = moment.frames[node]
        rows, added = list(frame.rows), _bounds(node, frame)
    else:
        rows = [row for row in stream_rows(source, moment) if time_of(row, node) <= moment.instant]
        if isinstance(window, TimeRange):
            rows = [row for row in rows if moment.instant - window.range <= time_of(row, node)]
        if isinstance(window, Rows):
            rows = [
                row
                for part in partitions(rows, window.partition, moment.rejects)
                for row in part[-window.count :]
            ]
    if moment.within is not None:
        begin, end = moment.within
        rows = [row for row in rows if begin <= time_of(row, node) <= end]
    return [row | added for row in rows]


def _bound(bound: Instant | Ago, moment: Moment) -> Instant:
    return moment.instant - bound.duration if isinstance(bound, Ago) else bound


def named(rows: Iterable[Row], query: Query, node: Windowed) -> list[Row]:
    """Rows of a query, as those of a source that reads it, column by column."""
    columns = query.schema.names
    return [dict(zip(node.schema.names, (row[name] for name in columns), strict=True)) for row in rows]


def _named(values: Mapping[str, Any], node: StreamScan | QueryScan | RelationScan | UnionAll) -> Row:
    return {f"{node.alias}.{name}": values[name] for name in node.table.names}


def _bookkeeping(row: Row) -> Row:
    return {name: value for name, value in row.items() if name.startswith(("#", ORDER))}


def _passing(predicate: Expression) -> Callable[[Row], Row | None]:
    return lambda row: row if holds(predicate, row) else None


def _join(node: Join, moment: Moment) -> list[Row]:
    lefts, rights = answer(node.left, moment), answer(node.right, moment)
    match = (lambda pair: pair) if node.condition is None else _passing(node.condition)
    joined: list[Row] = []
    paired: set[int] = set()
    for left in lefts:
        pairs = {
            number: pair
            for number, right in enumerate(rights)
            for pair in moment.rejects.survivors([left | right], match)
        }
        paired |= pairs.keys()
        if node.kind in ("semi", "anti"):
            joined += [left] if bool(pairs) == (node.kind == "semi") else []
        else:
            padded = [left | _nulls(node.right, moment)] if node.kind in ("left", "full") else []
            joined += list(pairs.values()) or padded
    if node.kind in ("right", "full"):
        nulls = _nulls(node.left, moment)
        joined += [nulls | right for number, right in enumerate(rights) if number not in paired]
    return joined


def _nulls(node: Node, moment: Moment) -> Row:
    """A row of NULLs; the bounds of a sliding window are the same in all of its rows."""
    nulls: Row = dict.fromkeys(node.schema.names)
    for window in _sliding(node):
        nulls |= _bounds(window, moment.frames[window])
    return nulls


def _bounds(window: Windowed, frame: Frame) -> Row:
    return {f"{window.alias}.window_{bound}": getattr(frame, bound) for bound in ("start", "end", "id")}


def _is_member(node: SemijoinColumn, left: Row, rights: list[Row]) -> bool | None:
    """True if a candidate passes, unknown if the test of one is unknown, else false; OR over the candidates."""
    outcomes: set[bool | None] = set()
    failure: RowError | None = None
    if node.test is not None:
        evaluate(node.test.arguments[0], left)
    for right in rights:
        try:
            met = True if node.test is None else evaluate(node.test, left | right)
            if met is not False and (node.condition is None or holds(node.condition, left | right)):
                outcomes.add(met)
        except RowError as error:
            failure = failure or error
    if True not in outcomes and failure is not None:
        raise failure
    return True if True in outcomes else None if None in outcomes else False


def _aggregate(node: Aggregate, moment: Moment) -> list[Row]:
    groups: dict[Hashable, tuple[list[Any], list[list[Any]]]] = {}
    calls = [named.call for named in node.aggregates]
    later = [bool(depends_on(call, node.aggregates)) for call in calls]

    def contribute(row: Row) -> None:
        keys = [evaluate(key.expression, row) for key in node.keys]
        arguments = [
            ((row, _argument(call, row)),)
            if waits
            else (_weighed(call, row),)
            if call.part in PARTS
            else (_argument(call, row),)
            if call.condition is None or holds(call.condition, row)
            else ()
            for call, waits in zip(calls, later, strict=True)
        ]
        _, columns = groups.setdefault(tuple(map(identity, keys)), (keys, [[] for _ in calls]))
        for column, argument in zip(columns, arguments, strict=True):
            column.extend(argument)

    moment.rejects.survivors(answer(node.source, moment), contribute)
    if not node.keys and not groups and (moment.empty_groups or not _sliding(node)):
        groups[()] = ([], [[] for _ in calls])

    bounds = _window_bounds(node, moment)

    def finish(group: Row) -> Row:
        keys, columns = groups[group[ORDER]]
        results: Row = {}
        for item, column, waits in zip(node.aggregates, columns, later, strict=True):
            condition = item.call.condition
            if waits and condition is not None:
                passing = [argument for row, argument in column if holds(condition, row | results)]
                results[item.name] = aggregate(item.call, passing)
            else:
                results[item.name] = aggregate(item.call, column)
        return group | results | {ORDER: tuple(map(sort_key, keys))}

    named = [
        {key.name: unsigned(value) for key, value in zip(node.keys, keys, strict=True)}
        | bounds
        | {ORDER: group}
        for group, (keys, _) in groups.items()
    ]
    return moment.rejects.survivors(named, finish)


def _argument(call: AggregateCall, row: Row) -> Any:
    """The argument of a row for an aggregate; True where only rows count."""
    counted_value = counted(call)
    return True if counted_value is None else evaluate(counted_value, row)


def _weighed(call: AggregateCall, row: Row) -> Weighed:
    """The same with the row's weight, also of rows that do not count."""
    counts = call.condition is None or holds(call.condition, row)
    weight = next(value for name, value in row.items() if name.endswith(f".{WEIGHT}"))
    return Weighed(_argument(call, row) if counts else None, weight)


def _sliding(node: Node) -> list[Windowed]:
    return [below for below in walk(node) if isinstance(below, Windowed) and slides(below.window)]


def _window_bounds(node: Aggregate, moment: Moment) -> Row:
    """The bounds are constant per window, so they can be read above the groups."""
    bounds: Row = {}
    for window in _sliding(node):
        bounds |= _bounds(window, moment.frames[window])
    return bounds


def _projected(node: Project, rows: Iterable[Row], moment: Moment) -> list[Row]:
    def project(row: Row) -> Row:
        return _bookkeeping(row) | {column.name: evaluate(column.expression, row) for column in node.columns}

    return moment.rejects.survivors(rows, project)


def _ranked(node: Top, moment: Moment) -> list[Row]:
    """Its rows with their keys in ORDER BY."""

    def with_order(row: Row) -> Row:
        keys = [
            sort_key(evaluate(item.expression, row), descending=item.descending, nulls_first=item.nulls_first)
            for item in node.order
        ]
        return row | {ORDER: (tuple(keys), row.get(ORDER, ()))}

    return moment.rejects.survivors(answer(node.source, moment), with_order)


def _first(placed: list[Row], output: Project | Top, limit: int | None) -> list[Row]:
    """The first rows in ORDER BY order, ties by the columns of the output."""
    names = output.schema.names
    return sorted(placed, key=lambda row: (row[ORDER][0], columns_key(row, names)))[:limit]
