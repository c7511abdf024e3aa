"""The clauses of a question over the archive, read from its tree; what cannot be estimated from a part of the rows is refused,
with the reason and a remedy.

A question reads one stream by rows; or samples of keys, where the stream's option `blocksBy` has them: then each key has all of its rows,
so that a SELECT in FROM by the key, and a join of two streams on it, are answered per key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NoReturn

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import (
    Call,
    Cast,
    Column,
    Expression,
    Named,
    columns_of,
    conjuncts,
)
from headrace.algebra.query import (
    Aggregate,
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
    StreamScan,
    Top,
    Windowed,
)
from headrace.algebra.windows.window import Changing, Unbounded
from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.errors import UnsupportedQuery, UserError
from headrace.language.syntax.ast import Item, Select
from headrace.operators.aggregates.group_by import Grouped
from headrace.runtime.invoke.questions.expansion import is_smooth

Streams = Callable[[str], StreamDefinition | None]
_REMEDY = "Available are COUNT, SUM, AVG, PERCENTILE and arithmetic with them over one stream, by groups or not, with WHERE and BEGIN … END."
_EXACT = "WITHIN 0 PERCENT does not help, since only totals are computed: register a query for it, CREATE QUERY name AS SELECT …"
_BY_KEY = (
    "Create the streams with OPTIONS (blocks '16', blocksBy 'column'), by the column that identifies a key."
)


@dataclass(frozen=True, slots=True)
class Side:
    """One stream that is read: its scan, the conditions of its own, and the columns that a question reads of it."""

    scan: StreamScan
    stream: StreamDefinition
    where: tuple[Expression, ...]

    @property
    def key(self) -> str | None:
        """The column of which keys are drawn, by its name in the question."""
        return None if self.stream.blocks_by is None else f"{self.scan.alias}.{self.stream.blocks_by}"


@dataclass(frozen=True, slots=True)
class PerKey:
    """A SELECT in FROM that has a row for each key (and other groups): the columns of `project` are read as `alias.name`."""

    grouped: Grouped
    having: tuple[Expression, ...]
    bounds: Bounds | None
    project: Project
    alias: str
    names: tuple[str, ...]
    key: str
    """The group of `grouped` that is the key."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: aggregates by groups over the rows of one stream, over the rows of a SELECT by key, or over pairs.

    `where` are the conditions on these rows. `columns` is the select list, over the names of keys and aggregates.
    """

    sides: tuple[Side, ...]
    per_key: PerKey | None
    where: tuple[Expression, ...]
    bounds: Bounds | None
    keys: tuple[Named, ...]
    aggregates: tuple[NamedAggregate, ...]
    columns: tuple[Named, ...]

    @property
    def by_key(self) -> bool:
        """Whether keys are drawn, and not rows."""
        return self.sides[0].key is not None

    @property
    def design(self) -> str:
        """The sample, as EXPLAIN shows it."""
        side = self.sides[0]
        return f"keys of {side.stream.blocks_by}, each with all of its rows" if self.by_key else "rows"


KEPT: Final = "kept"
"""The column of an answer with the share that was read."""


def error_of(name: str) -> str:
    """The column with the errors of an estimated column."""
    return f"{name}_error"


def check_names(query: Query, select: Select) -> None:
    """Refuse a column of the select list with the name of one that the answer has besides, at its place."""
    names = query.schema.names
    taken = {KEPT: "the share of the archive that was read"}
    taken |= {error_of(name).lower(): f"the error of '{name}'" for name in names}
    items = [item for item in select.items if isinstance(item, Item)]
    spans = [item.span for item in items] if len(items) == len(names) else [select.span] * len(names)
    for name, span in zip(names, spans, strict=True):
        if name.lower() in taken:
            raise UserError(
                f"the column '{name}' has the name of {taken[name.lower()]}, which the answer of a question has besides",
                span=span,
                remedy="Give it another name: … AS name.",
            )


def question_of(query: Query, streams: Streams) -> Question:
    """The clauses of a question. Raises `UnsupportedQuery` where the error is not known from a part of the rows, and `UserError`
    where there is no archive to read.
    """
    if query.revisions is not None or query.shedding or query.emission != "relation":
        _refuse("with a window that slides, with WITH REVISIONS or WITH SHEDDING")
    project = query.root
    if isinstance(project, Distinct | Top | Emit):
        _refuse("with DISTINCT, ORDER BY or LIMIT: which rows there are would depend on errors")
    assert isinstance(project, Project)
    aggregate = _aggregate(project.source)
    where, bounds, source = _conditions(aggregate.source)
    if isinstance(source, Join) and source.condition is not None:
        where = (*where, *conjuncts(source.condition))
    sides, per_key = _sources(source, where, streams)
    if per_key is not None:
        if bounds is not None:
            _refuse(
                "with BEGIN … END around a SELECT in FROM", "Write BEGIN … END inside the SELECT in FROM."
            )
        bounds = per_key.bounds
    question = Question(sides, per_key, where, bounds, aggregate.keys, aggregate.aggregates, project.columns)
    for item in aggregate.aggregates:
        _check_call(question, item.call)
    _check_columns(question)
    return question


def _aggregate(node: Node) -> Aggregate:
    if isinstance(node, Filter):
        _refuse(
            "with HAVING: which groups there are would depend on errors",
            "Compare the answer with its errors.",
        )
    if not isinstance(node, Aggregate):
        _refuse("without aggregates: rows that were not read have no estimate")
    return node


def _conditions(node: Node) -> tuple[tuple[Expression, ...], Bounds | None, Node]:
    """WHERE and BEGIN … END, and the node below them."""
    where: list[Expression] = []
    bounds = None
    while isinstance(node, Filter | Bounds):
        if isinstance(node, Bounds):
            bounds = node
        else:
            where += conjuncts(node.predicate)
        node = node.source
    return tuple(where), bounds, node


def _sources(
    node: Node, where: tuple[Expression, ...], streams: Streams
) -> tuple[tuple[Side, ...], PerKey | None]:
    """The streams that are read, and the SELECT per key over the one."""
    if isinstance(node, Join):
        return _joined(node, where, streams), None
    if isinstance(node, SemijoinColumn):
        _refuse("with IN or EXISTS over another source: a part of the rows has not all of its rows")
    if not isinstance(node, Windowed):
        _refuse("over stored relations: they have no blocks")
    _, below = _below(node)
    if isinstance(below, QueryScan) and below.query is not None and isinstance(node.window, Changing):
        side, per_key = _per_key(below, streams)
        return (side,), per_key
    return (_side(node, streams),), None


def _below(node: Windowed) -> tuple[tuple[Expression, ...], Node]:
    where, _, below = _conditions(node.source)
    return where, below


def _side(node: Windowed, streams: Streams) -> Side:
    where, scan = _below(node)
    if not isinstance(scan, StreamScan) or scan.channel != "rows":
        _refuse("over late or rejected rows, unions and other queries: they have no blocks of their own")
    if not isinstance(node.window, Unbounded):
        _refuse("over a window of its own: BEGIN … END chooses the time")
    stream = streams(scan.name)
    assert stream is not None
    if stream.archive != "copy":
        raise UserError(
            f"the stream '{stream.name}' keeps no copy of its rows (archive '{stream.archive}')",
            remedy="WITHIN reads the archive: leave the option `archive` out.",
        )
    return Side(scan, stream, where)


def _joined(node: Join, where: tuple[Expression, ...], streams: Streams) -> tuple[Side, ...]:
    """The two streams of an inner join on the keys by which their blocks are drawn."""
    reason = "with a join: a part of the rows is not a part of the pairs"
    left, right = node.left, node.right
    if node.kind != "inner" or isinstance(right, RelationScan):
        _refuse(
            reason, "A query registered over the join has the exact answer: CREATE QUERY name AS SELECT …"
        )
    if not isinstance(left, Windowed) or not isinstance(right, Windowed):
        _refuse("with a join of more than two streams", "Join two streams, by the column of their blocks.")
    sides = _side(left, streams), _side(right, streams)
    if None in (sides[0].key, sides[1].key) or not any(_equal(factor, sides) for factor in where):
        _refuse(f"{reason}, unless both streams are drawn by the key on which they are joined", _BY_KEY)
    return sides


def _equal(factor: Expression, sides: tuple[Side, Side]) -> bool:
    """Whether a condition is the equality of the two keys, which have one kind of values."""
    if not (isinstance(factor, Call) and factor.function == "="):
        return False
    plain = [_plain(argument) for argument in factor.arguments]
    kinds = {
        "WHOLE"
        if (kind := side.stream.schema.field(side.stream.blocks_by or "").type).is_integer
        else kind.name
        for side in sides
    }
    return len(kinds) == 1 and set(plain) == {side.key for side in sides}


def _plain(expression: Expression) -> str | None:
    """The column of an expression that is one, also as another kind of whole number: equal ones stay equal, others differ."""
    if isinstance(expression, Cast) and expression.type.is_integer and expression.argument.type.is_integer:
        expression = expression.argument
    return expression.name if isinstance(expression, Column) else None


def _per_key(scan: QueryScan, streams: Streams) -> tuple[Side, PerKey]:
    """The stream of a SELECT in FROM, which has groups for each key, and the SELECT."""
    inner = scan.query
    assert inner is not None
    project, having = inner.root, list[Expression]()
    if not isinstance(project, Project) or inner.shedding or inner.revisions is not None:
        _refuse("over a SELECT with DISTINCT, ORDER BY or LIMIT in FROM: it compares keys with each other")
    node = project.source
    while isinstance(node, Filter):
        having += conjuncts(node.predicate)
        node = node.source
    if not isinstance(node, Aggregate):
        _refuse(
            "over a SELECT without GROUP BY in FROM", "Write its conditions in the WHERE of the question."
        )
    where, bounds, source = _conditions(node.source)
    if not isinstance(source, Windowed):
        _refuse("over a SELECT with a join in FROM")
    side = _side(source, streams)
    key = next((key.name for key in node.keys if _plain(key.expression) == side.key and side.key), None)
    if key is None:
        _refuse(
            f"over groups of '{side.stream.name}' that are not those of its blocks: rows of a group that were not read may change it",
            f"{_BY_KEY} Group by that column.",
        )
    grouped = Grouped(node.keys, node.aggregates)
    names = tuple(field.name for field in scan.table)
    per_key = PerKey(grouped, tuple(having), bounds, project, scan.alias, names, key)
    return Side(side.scan, side.stream, (*side.where, *where)), per_key


def _check_call(question: Question, call: AggregateCall) -> None:
    """Refuse an aggregate without an estimate."""
    name = f"{call.function.upper()}{' DISTINCT' if call.distinct else ''}"
    if call.within is not None or call.against:
        _refuse(f"for {name} that is approximate itself", "Leave its own WITHIN or comparison out.")
    if call.function == "count" and call.distinct:
        key = question.sides[0].key if question.per_key is None and len(question.sides) == 1 else None
        if key is None or call.argument is None or _plain(call.argument) != key:
            _refuse(
                f"for {name}: of a value that was read it is not known whether it is one of the rows that were not",
                f"It is available for the column of `blocksBy`. {_BY_KEY} Or register APPROX_DISTINCT as a query.",
            )
        return
    if call.distinct:
        _refuse(f"for {name}: values that repeat in rows that were not read would count again", _EXACT)
    if call.function in ("min", "max"):
        _refuse(
            f"for {name}: the {'least' if call.function == 'min' else 'greatest'} value may be in a row that was not read",
            f"PERCENTILE(x, {'0.01' if call.function == 'min' else '0.99'}) has an estimate. {_EXACT}",
        )
    if call.function == "percentile":
        if question.by_key:
            _refuse("for PERCENTILE over blocks by key: its error is not known", _EXACT)
        if call.share in (0, 1):
            _refuse(
                "for PERCENTILE 0 or 1: the value may be in a row that was not read",
                "Such as PERCENTILE(x, 0.99).",
            )
        return
    if call.function not in ("count", "sum", "avg"):
        _refuse(f"for {name}: it has no estimate from a part")


def _check_columns(question: Question) -> None:
    """Refuse columns of the select list whose error is not known."""
    groups = {key.name for key in question.keys}
    totals = {item.name for item in question.aggregates if item.call.function != "percentile"}
    percentiles = {item.name for item in question.aggregates} - totals
    for column in question.columns:
        expression = column.expression
        if isinstance(expression, Column) and expression.name in groups | percentiles:
            continue
        if not columns_of(expression) or not is_smooth(expression, totals):
            _refuse(
                f"for '{column.name}': the error of an expression over estimates is not known, but for + - * / with numbers"
            )


def names_of(question: Question) -> Iterator[Expression]:
    """Every expression that is evaluated on archived rows, over names of columns with their alias."""
    per_key = question.per_key
    if per_key is not None:
        yield from per_key.grouped.inputs()
    else:
        yield from question.where
        yield from (key.expression for key in question.keys)
        for item in question.aggregates:
            yield from (part for part in (item.call.argument, item.call.condition) if part is not None)
    for side in question.sides:
        yield from side.where


def _refuse(reason: str, remedy: str = _REMEDY) -> NoReturn:
    raise UnsupportedQuery(f"WITHIN is not available {reason}", remedy=remedy)
