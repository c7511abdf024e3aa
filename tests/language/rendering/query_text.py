"""The text of a bound query, which means the same when it is read back. Definitions are in `definition_text`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.algebra.expressions.expression import Call, Expression, Literal, Named, columns_of
from headrace.algebra.quality_of_service import QualityOfService
from headrace.algebra.query import (
    Aggregate,
    Ago,
    Bounds,
    Distinct,
    Emit,
    Filter,
    Join,
    Node,
    Project,
    Query,
    QueryScan,
    RelationScan,
    SemijoinColumn,
    SortKey,
    StreamScan,
    Top,
    UnionAll,
    Windowed,
    walk,
)
from headrace.algebra.windows.window import (
    WHOLE,
    Changing,
    Custom,
    Delta,
    Landmark,
    Lasting,
    Rows,
    RowsSlide,
    Session,
    TimeRange,
    TimeSlide,
    TupleSlide,
    Unbounded,
    Window,
)
from headrace.errors import UnsupportedQuery
from headrace.language.binder.expressions.scope import WINDOW_COLUMNS
from headrace.language.binder.sources.set_operators import SIDE
from headrace.language.parser.literals import shown_instant
from headrace.language.parser.query import TOGETHER
from headrace.language.parser.quoting import identifier
from headrace.schema import INT
from headrace.time import SECOND, Instant, render_duration
from tests.language.rendering.expression_text import (
    render_aggregate,
    render_columns,
    render_expression,
    render_membership,
)


def render(query: Query) -> str:
    """The SELECT of a query from the binder.

    Raises `UnsupportedQuery` for trees of another shape.
    """
    parts = _Parts()
    for node in walk(query.root):
        parts.take(node)
    text = _Text(parts, _column_texts(query.root)).select()
    if parts.emit is not None:
        text = f"{parts.emit.kind.upper()}({text})"
    return text + (" EMIT EMPTY" if query.emit_empty else "") + _with(query)


def _with(query: Query) -> str:
    revisions, text = query.revisions, ""
    if query.shedding:
        text += " WITH SHEDDING (repair)" if query.repair else " WITH SHEDDING"
    if revisions is not None:
        text += " WITH REVISIONS"
        text += "" if revisions.within is None else f" FOR INTERVAL {render_duration(revisions.within)}"
    return text + ("" if query.quality is None else f" WITH QOS ({_graphs(query.quality)})")


def _graphs(quality: QualityOfService) -> str:
    texts = []
    if quality.delay is not None:
        points = (f"{utility!r} AT {round(at * SECOND)} MICROSECONDS" for at, utility in quality.delay.points)
        texts.append(f"delay ({', '.join(points)})")
    if quality.loss is not None:
        points = (f"{utility!r} AT {100 * lost!r} PERCENT" for lost, utility in quality.loss.points)
        texts.append(f"loss ({', '.join(points)})")
    if quality.importance is not None:
        *below, otherwise = quality.importance.levels
        levels = [
            f"{level!r} BELOW {bound!r}"
            for level, bound in zip(below, quality.importance.bounds, strict=True)
        ]
        texts.append(
            f"value {identifier(quality.importance.column)} ({', '.join([*levels, f'{otherwise!r} OTHERWISE'])})"
        )
    if quality.sketches is not None:
        texts.append(f"sketches {quality.sketches!r}")
    if quality.error is not None:
        points = (f"{utility!r} AT {times!r} TIMES" for times, utility in quality.error.points)
        texts.append(f"error ({', '.join(points)})")
    return ", ".join(texts)


def _column_texts(root: Node) -> dict[str, str]:
    """The text of each internal column name below the aggregation."""
    texts: dict[str, str] = {}
    scans = [n for n in walk(root) if isinstance(n, StreamScan | RelationScan | QueryScan | UnionAll)]
    for node in scans:
        texts |= render_columns(node.alias, node.table.names, WINDOW_COLUMNS, only=len(scans) == 1)
    for mark in reversed([node for node in walk(root) if isinstance(node, SemijoinColumn)]):
        texts[mark.name] = render_membership(mark, texts)
    return texts


@dataclass(slots=True)
class _Parts:
    """The clauses of a query, collected from the root down."""

    emit: Emit | None = None
    distinct: bool = False
    top: Top | None = None
    project: Project | None = None
    aggregate: Aggregate | None = None
    bounds: Bounds | None = None
    windowed: Windowed | None = None
    having: Expression | None = None
    where: Expression | None = None
    early: Expression | None = None
    joins: list[Join] = field(default_factory=list)
    met: list[Join] = field(default_factory=list)  # the joins with the streams after the first
    scan: StreamScan | QueryScan | UnionAll | None = None

    def take(self, node: Node) -> None:
        """Note the next node."""
        match node:
            case Emit():
                self.emit = node
            case Distinct():
                self.distinct = True
            case Top() if self.top is None:
                self.top = node
            case Project() if self.project is None:
                self.project = node
            case Aggregate() if self.aggregate is None:
                self.aggregate = node
            case Bounds():
                self.bounds = node
            case Windowed() if self.windowed is None:
                self.windowed = node
            case Filter():
                self._filter(node)
            case Join(right=RelationScan()):
                self.joins.insert(0, node)
            case Join(right=Windowed(), kind="inner" | "left" | "right" | "full"):
                self.met.insert(0, node)
            case SemijoinColumn():
                pass
            case StreamScan() | QueryScan() | UnionAll() if self.scan is None:
                self.scan = node
            case RelationScan():
                pass
            case StreamScan() | QueryScan() if isinstance(self.scan, UnionAll):
                pass
            case Windowed() | StreamScan() | QueryScan() | UnionAll() if self.met:
                pass
            case _:
                raise UnsupportedQuery(f"a query with {type(node).__name__} in this place has no text")

    def _filter(self, node: Filter) -> None:
        below = node.source
        if self.windowed is not None:
            self.early = node.predicate
        elif isinstance(below, Aggregate):
            self.having = node.predicate
        else:
            self.where = node.predicate


@dataclass(frozen=True, slots=True)
class _Text:
    """Renders clauses; `rows` has the text of each column of the sources."""

    parts: _Parts
    rows: Mapping[str, str]

    def select(self) -> str:
        """The SELECT without its relation-to-stream operator."""
        parts, above = self.parts, self._above()
        if isinstance(parts.scan, UnionAll) and any(
            member.query is not None for member in _queries(parts.scan)
        ):
            return " ".join([self._several(_queries(parts.scan)), *self._top(above)])
        if isinstance(parts.scan, QueryScan) and parts.scan.name == TOGETHER and parts.scan.query is not None:
            return " ".join([_of_bags(parts.scan.query), *self._top(above)])
        items = [
            f"{render_expression(column.expression, above)} AS {identifier(column.name)}"
            for column in self._written
        ]
        clauses = [
            f"SELECT {'DISTINCT ' if parts.distinct else ''}{', '.join(items)}",
            f"FROM {self._sources()}",
        ]
        conditions = [
            render_expression(item, self.rows) for item in (parts.early, parts.where) if item is not None
        ]
        if conditions:
            clauses.append("WHERE " + " AND ".join(conditions))
        if parts.bounds is not None:
            clauses.append(f"BEGIN {_bound(parts.bounds.begin)} END {_bound(parts.bounds.end)}")
        groups = self._groups()
        if groups:
            clauses.append("GROUP BY " + ", ".join(groups))
        if parts.having is not None:
            clauses.append("HAVING " + render_expression(parts.having, above))
        return " ".join([*clauses, *self._top(above)])

    def _several(self, operands: Sequence[QueryScan]) -> str:
        """SELECTs with a set operator; one that counts rows compares the count of an input with zero."""
        condition = self.parts.having
        operator = "UNION" if self.parts.distinct else "UNION ALL"
        if isinstance(condition, Call):
            operator = "EXCEPT" if condition.function == "=" else "INTERSECT"
        texts = [render(_without_side(member.query)) for member in operands if member.query is not None]
        return f" {operator} ".join(f"({text})" for text in texts)

    @property
    def _written(self) -> tuple[Named, ...]:
        """The select list without the errors and shares that WITH SHEDDING adds."""
        project, aggregate = self.parts.project, self.parts.aggregate
        assert project is not None
        items = () if aggregate is None else aggregate.aggregates
        added = {item.name for item in items if item.call.part in ("error", "kept")}
        return tuple(column for column in project.columns if not columns_of(column.expression) & added)

    def _above(self) -> dict[str, str]:
        """The text of columns above the aggregation: keys and aggregates as the expressions they are computed from."""
        texts = dict(self.rows)
        if self.parts.aggregate is not None:
            for key in self.parts.aggregate.keys:
                texts[key.name] = render_expression(key.expression, self.rows)
            for item in self.parts.aggregate.aggregates:
                texts[item.name] = render_aggregate(item.call, {**self.rows, **texts})
        return texts

    def _groups(self) -> list[str]:
        keys = () if self.parts.aggregate is None else self.parts.aggregate.keys
        groups = [_group(key.expression, self.rows) for key in keys]
        if self._grouped_window:
            groups.append(self._window_call())
        elif self.parts.windowed is not None and self._groups_windows_alone:
            groups.append(self.rows[f"{self.parts.windowed.alias}.window_start"])
        return groups

    @property
    def _groups_windows_alone(self) -> bool:
        """True when rows are counted for the sake of their window's group alone, and no clause reads the count."""
        aggregate, project, top = self.parts.aggregate, self.parts.project, self.parts.top
        if aggregate is None or project is None or aggregate.keys:
            return False
        read = [column.expression for column in project.columns]
        read += [key.expression for key in top.order] if top is not None else []
        read += [self.parts.having] if self.parts.having is not None else []
        counts = {item.name for item in aggregate.aggregates}
        return not any(columns_of(expression) & counts for expression in read)

    @property
    def _grouped_window(self) -> bool:
        """True when conditions are below the window, as only GROUP BY window(…) makes them."""
        return self.parts.early is not None

    def _window_call(self) -> str:
        scan, windowed = self.parts.scan, self.parts.windowed
        assert windowed is not None
        if isinstance(windowed.window, Session) and isinstance(scan, StreamScan | UnionAll) and scan.time:
            at = self.rows[f"{scan.alias}.{scan.time}"]
            return f"session_window({at}, INTERVAL {windowed.window.gap} MICROSECONDS)"
        if not (isinstance(windowed.window, TimeSlide) and scan is not None and scan.time):
            raise UnsupportedQuery("conditions below a window that is not taken over event time have no text")
        window = windowed.window
        lengths = (window.range, window.slide, window.anchor - window.range)
        written = ", ".join(f"INTERVAL {length} MICROSECONDS" for length in lengths)
        return f"window({self.rows[f'{scan.alias}.{scan.time}']}, {written})"

    def _sources(self) -> str:
        scan, windowed = self.parts.scan, self.parts.windowed
        assert scan is not None
        assert windowed is not None
        text = _source(scan, None if self._grouped_window else windowed.window, self.rows)
        for join in self.parts.met:
            other = join.right
            assert isinstance(other, Windowed)
            assert isinstance(other.source, StreamScan | QueryScan | UnionAll)
            on = "" if join.condition is None else f" ON {render_expression(join.condition, self.rows)}"
            word = ("JOIN" if on else "CROSS JOIN") if join.kind == "inner" else f"{join.kind.upper()} JOIN"
            text += f" {word} {_source(other.source, other.window, self.rows)}{on}"
        return text + self._joins()

    def _joins(self) -> str:
        text = ""
        for join in self.parts.joins:
            assert isinstance(join.right, RelationScan)
            right = f"{identifier(join.right.name)} AS {identifier(join.right.alias)}"
            if join.condition is None and join.kind == "inner":
                text += f" CROSS JOIN {right}"
            else:
                assert join.condition is not None
                word = "LEFT JOIN" if join.kind == "left" else "JOIN"
                text += f" {word} {right} ON {render_expression(join.condition, self.rows)}"
        return text

    def _top(self, above: Mapping[str, str]) -> list[str]:
        top, project = self.parts.top, self.parts.project
        if top is None:
            return []
        assert project is not None
        texts = (
            {column.name: identifier(column.name) for column in project.columns}
            if self.parts.distinct
            else above
        )
        clauses = []
        if top.order:
            clauses.append("ORDER BY " + ", ".join(_sort_key(key, texts) for key in top.order))
        if top.limit is not None:
            clauses.append(f"LIMIT {top.limit}")
        return clauses


def _of_bags(query: Query) -> str:
    """SELECTs with EXCEPT ALL or INTERSECT ALL, of the query that repeats their rows."""
    counted = next(node.query for node in walk(query.root) if isinstance(node, QueryScan))
    assert counted is not None
    nodes = walk(counted.root)
    union = next(node for node in nodes if isinstance(node, UnionAll))
    having = next(node.predicate for node in nodes if isinstance(node, Filter))
    assert isinstance(having, Call)
    operator = "INTERSECT ALL" if "least" in repr(having.arguments[0]) else "EXCEPT ALL"
    texts = [render(_without_side(member.query)) for member in _queries(union) if member.query is not None]
    return f" {operator} ".join(f"({text})" for text in texts)


def _without_side(query: Query) -> Query:
    """An input of EXCEPT or INTERSECT without the column of its number."""

    def changed(node: Node) -> Node:
        if isinstance(node, Project):
            return replace(node, columns=tuple(column for column in node.columns if column.name != SIDE))
        return replace(node, source=changed(node.source))

    return replace(query, root=changed(query.root))


def _queries(scan: UnionAll) -> list[QueryScan]:
    return [member for member in scan.inputs if isinstance(member, QueryScan)]


def _source(scan: StreamScan | QueryScan | UnionAll, window: Window | None, rows: Mapping[str, str]) -> str:
    """A stream of FROM with its alias and window."""
    channel = f" {scan.channel.upper()}" if isinstance(scan, StreamScan) and scan.channel != "rows" else ""
    bracket = "" if window is None or isinstance(window, Changing) else f" {_bracket(window, rows)}"
    if isinstance(scan, QueryScan) and scan.time is not None and bracket:
        bracket = f"{bracket[:-1]} WATTR {identifier(scan.time)}]"
    name = identifier(scan.name)
    if isinstance(scan, QueryScan) and scan.query is not None and not scan.registered:
        name = f"({render(scan.query)})"
    if isinstance(scan, UnionAll):
        name = f"({' UNION ALL '.join(identifier(member.name) for member in scan.inputs)})"
    return f"{name}{channel} AS {identifier(scan.alias)}{bracket}"


def _group(key: Expression, columns: Mapping[str, str]) -> str:
    """A key as an item of GROUP BY, where a bare number would count the select list."""
    text = render_expression(key, columns)
    return f"CAST({text} AS INT)" if isinstance(key, Literal) and key.type == INT else text


def _sort_key(key: SortKey, columns: Mapping[str, str]) -> str:
    text = _group(key.expression, columns)
    return f"{text} {'DESC' if key.descending else 'ASC'} NULLS {'FIRST' if key.nulls_first else 'LAST'}"


def _bound(bound: Instant | Ago) -> str:
    if isinstance(bound, Ago):
        return "NOW" if bound.duration == 0 else f"NOW - INTERVAL {bound.duration} MICROSECONDS"
    return f"TIMESTAMP '{shown_instant(bound)}'"


def _bracket(window: Window, columns: Mapping[str, str]) -> str:
    match window:
        case TimeSlide() if window == WHOLE:
            return "[RANGE TUMBLING ALL]"
        case TimeSlide():
            return f"[RANGE {render_duration(window.range)} SLIDE {render_duration(window.slide)}{_origin(window.anchor)}]"
        case Landmark():
            return f"[LANDMARK SLIDE {render_duration(window.slide)}{_origin(window.anchor)}]"
        case TimeRange(range=0):
            return "[NOW]"
        case TimeRange():
            return f"[RANGE {render_duration(window.range)}]"
        case Unbounded():
            return "[RANGE UNBOUNDED]"
        case Rows() | RowsSlide():
            keys = ", ".join(render_expression(key, columns) for key in window.partition)
            slide = f" SLIDE {window.slide}" if isinstance(window, RowsSlide) else ""
            by = " WATTR row_num" if isinstance(window, RowsSlide) and window.numbered == "row_num" else ""
            return f"[{f'PARTITION BY {keys} ' if keys else ''}ROWS {window.count}{slide}{by}]"
        case Delta():
            keys = ", ".join(render_expression(key, columns) for key in window.partition)
            on = render_expression(window.on, columns)
            return f"[{f'PARTITION BY {keys} ' if keys else ''}DELTA {window.threshold!r} ON {on}]"
        case Custom():
            arguments = ", ".join(render_expression(argument, columns) for argument in window.arguments)
            on = ", ".join(render_expression(column, columns) for column in window.on)
            return f"[WINDOW {identifier(window.name)}({arguments}){f' ON {on}' if on else ''}]"
        case Session():
            keys = ", ".join(render_expression(key, columns) for key in window.partition)
            return f"[{f'PARTITION BY {keys} ' if keys else ''}SESSION {render_duration(window.gap)}]"
        case Lasting() | Changing():
            raise UnsupportedQuery("pairs of rows have no window of their own that could be written")
        case TupleSlide():
            keys = ", ".join(render_expression(key, columns) for key in window.partition)
            by = " SATTR row_num" if window.numbered == "row_num" else ""
            pa = f" PA {keys}" if keys else ""
            return f"[RANGE {render_duration(window.range)} SLIDE {window.every} ROWS{by}{pa}]"


def _origin(at: Instant) -> str:
    return f" ORIGIN TIMESTAMP '{shown_instant(at)}'" if at else ""
