"""What a query stores: its final answers, its provisional ones and its state, each with its growth, from its nodes alone.

Source: Babu and Widom 2001, section 3: Stream, Store, Scratch and Throw.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from headrace.algebra.expressions.aggregates import BY_VALUE, SKETCHED
from headrace.algebra.query import (
    Aggregate,
    Ago,
    Bounds,
    Distinct,
    Join,
    Node,
    Query,
    QueryScan,
    RelationScan,
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
    slides,
)
from headrace.dataclass import dataclass
from headrace.planner.joins.interval_joins import with_intervals
from headrace.planner.storage.extent import NOTHING, Extent, Growth
from headrace.time import Duration, render_duration


@dataclass(frozen=True, slots=True)
class QueryStorage:
    """The parts of a query's answer and state: what is in none of them is dropped.

    `final`: answers that are never retracted (Stream). `provisional`: those that may be (Store); the answer is both together.
    `state`: what is not in the answer, and needed for later ones (Scratch).
    """

    final: Extent
    provisional: Extent
    state: Extent

    @property
    def growth(self) -> Growth:
        """How what is stored besides final answers grows as the stream continues."""
        return self.provisional.plus(self.state).growth

    def lines(self) -> list[str]:
        """The parts in words, and what limits them, for EXPLAIN."""
        return [
            f"  answers that are final: {self.final}",
            f"  answers that may be retracted: {self.provisional}",
            f"  state: {self.state}",
            f"  {_LIMITS[self.growth]}",
        ]


_LIMITS: Final[Mapping[Growth, str]] = {
    "nothing": "nothing is stored but final answers",
    "fixed": "what is stored besides final answers has a fixed size",
    "window": "what is stored besides final answers follows the rate of rows, not the length of the stream",
    "values": "what is stored besides final answers follows the number of different values",
    "stream": "what is stored besides final answers GROWS WITHOUT LIMIT: a window, an interval between the times that are joined, "
    "a CONSTRAINT of a stream, or REVISIONS FOR an interval limits it",
}


def storage_of(query: Query) -> QueryStorage:
    """The storage of a bound query, as the planner answers it. Conservative: what is limited by a declared constraint alone counts as
    without a limit.
    """
    query = with_intervals(query)
    relation = _relation(query.root)
    if query.emission == "windows":
        return _of_windows(query, relation)
    if query.emission == "stream":
        return QueryStorage(Extent("stream", ("every row that it emits",)), NOTHING, relation.state)
    if relation.only_grows:
        return QueryStorage(relation.rows, NOTHING, relation.state)
    return QueryStorage(NOTHING, relation.rows, relation.state)


def _of_windows(query: Query, relation: _Relation) -> QueryStorage:
    final = Extent("stream", ("every window, once it has closed",))
    late = query.revisions
    if late is not None and late.within is None:
        revised = Extent("stream", ("every window, since rows may be late without a limit",))
        return QueryStorage(NOTHING, revised, Extent("stream", ("the cells of every window",)))
    if late is not None and late.within is not None:
        limit = render_duration(late.within)
        revised = Extent("window", (f"the windows of the last {limit}, which late rows may change",))
        return QueryStorage(final, revised, relation.state.plus(Extent("window", (f"the cells of {limit}",))))
    if query.repair:
        samples = Extent("window", ("the windows answered from samples, until they are repaired",))
        return QueryStorage(final, samples, relation.state)
    return QueryStorage(final, NOTHING, relation.state)


@dataclass(frozen=True, slots=True)
class _Relation:
    """The rows of a node at an instant or in a window, and what is stored to make them."""

    rows: Extent
    state: Extent
    only_grows: bool = False
    """Whether no row is retracted as the stream continues."""


_ONE_ROW: Final = Extent("fixed", ("one row",))


def _relation(node: Node) -> _Relation:
    match node:
        case StreamScan(name=name):
            return _Relation(Extent("stream", (f"all rows of {name}",)), NOTHING, only_grows=True)
        case RelationScan(name=name):
            return _Relation(Extent("fixed", (f"the relation {name}",)), NOTHING, only_grows=True)
        case QueryScan():
            return _answers(node)
        case UnionAll(inputs=inputs):
            return _together([_relation(each) for each in inputs])
        case Windowed(source=source, window=window):
            return _windowed(_relation(source), window)
        case Bounds(source=source):
            return _between(node, _relation(source))
        case Join():
            return _joined(node)
        case Aggregate(source=source):
            return _aggregated(node, _relation(source))
        case Distinct(source=source):
            return _distinct(_relation(source))
        case Top(source=source):
            return _first(node, _relation(source))
        case _:
            return _relation(node.children[0])


def _together(relations: list[_Relation]) -> _Relation:
    whole = relations[0]
    for each in relations[1:]:
        only_grows = whole.only_grows and each.only_grows
        whole = _Relation(whole.rows.plus(each.rows), whole.state.plus(each.state), only_grows)
    return whole


def _answers(scan: QueryScan) -> _Relation:
    """The answers of another query: of a registered one the state is its own."""
    if scan.query is None:
        return _Relation(Extent("stream", (f"all answers of {scan.name}",)), NOTHING, only_grows=True)
    inner = storage_of(scan.query)
    state = NOTHING if scan.registered else inner.state
    if scan.query.emission == "relation":
        rows = inner.final.plus(inner.provisional)
        return _Relation(rows, state, only_grows=inner.provisional == NOTHING)
    return _Relation(
        Extent("stream", (f"all answers of {scan.name}",)), state, not scan.query.retracts_windows
    )


def _windowed(source: _Relation, window: Window) -> _Relation:
    if window == Unbounded() or window == WHOLE:
        return source
    if isinstance(window, Landmark | Changing):
        return _Relation(source.rows, source.state.plus(source.rows), source.only_grows)
    rows = _of_window(window)
    return _Relation(rows, source.state.plus(rows), isinstance(window, Unbounded))


def _of_window(window: Window) -> Extent:
    match window:
        case TimeSlide(range=length) | TimeRange(range=length) | TupleSlide(range=length):
            return _of_time(length)
        case Unbounded(needed=needed):
            return _of_time(needed or 0)
        case Rows(count=count, partition=partition) | RowsSlide(count=count, partition=partition):
            last = f"the last {count:,} rows"
            return Extent("values", (f"{last} of each partition",)) if partition else Extent("fixed", (last,))
        case Session(gap=gap):
            return Extent(
                "window",
                (f"the rows of sessions that are open: less than {render_duration(gap)} between two",),
            )
        case Delta():
            return Extent("window", ("the rows of windows that are open",))
        case Custom(name=name):
            return Extent("window", (f"the rows of windows '{name}' that are open",))
        case Lasting():
            return Extent("window", ("the pairs that hold",))
        case _:
            raise ValueError(f"no extent of {window}")


def _of_time(length: Duration) -> Extent:
    return Extent(
        "window", (f"the rows of {render_duration(length)}" if length else "the rows of an instant",)
    )


def _between(bounds: Bounds, source: _Relation) -> _Relation:
    """The rows of BEGIN … END, stored for an answer at any time."""
    if isinstance(bounds.begin, Ago):
        rows = Extent("window", (f"the rows of {render_duration(bounds.begin.duration)}",))
    elif isinstance(bounds.end, Ago):
        rows = Extent("stream", ("all rows since BEGIN",))
    else:
        rows = Extent("window", ("the rows between BEGIN and END",))
    rows = rows.at_most(source.rows)
    return _Relation(rows, source.state.plus(rows), only_grows=not isinstance(bounds.begin, Ago))


def _joined(join: Join) -> _Relation:
    left, right = _relation(join.left), _relation(join.right)
    if _with_relation(join):
        return right if _reads_relation(join.left) else left
    rows = left.rows if join.kind in ("semi", "anti") else Extent("nothing").plus(left.rows).plus(right.rows)
    state = left.state.plus(left.rows).plus(right.state).plus(right.rows)
    grows = left.only_grows and right.only_grows and join.kind in ("inner", "semi")
    return _Relation(rows, state, grows)


def _with_relation(join: Join) -> bool:
    """Whether a side is a stored relation, whose rows the catalog has."""
    return _reads_relation(join.left) or _reads_relation(join.right)


def _reads_relation(node: Node) -> bool:
    return any(isinstance(below, RelationScan) for below in walk(node))


def _aggregated(node: Aggregate, source: _Relation) -> _Relation:
    groups = Extent("values", ("one row for each group",)) if node.keys else _ONE_ROW
    rows = replace(groups, growth=groups.at_most(source.rows).growth)
    windows = [below.window for below in walk(node.source) if isinstance(below, Windowed)]
    if (
        any(isinstance(below, Join) and not _with_relation(below) for below in walk(node.source))
        or not windows
    ):
        cells = _cells(node, SKETCHED)
        return _Relation(rows, source.state.plus(replace(cells, growth=cells.at_most(source.rows).growth)))
    return _Relation(rows, _aggregated_window(node, windows[0], source))


def _aggregated_window(node: Aggregate, window: Window, source: _Relation) -> Extent:
    """The state of the groups of a window of one stream."""
    if isinstance(window, Session):
        return replace(source.state, words=("a cell for each session that is open",))
    if isinstance(window, TimeSlide) and window != WHOLE:
        return Extent("window", (f"a cell for each group in each pane of {render_duration(window.range)}",))
    if source.only_grows:
        return _cells(node, () if slides(window) else SKETCHED)
    if slides(window):
        return source.state
    if isinstance(window, TimeRange) and all(item.call.function in _EXPIRING for item in node.aggregates):
        return Extent("window", (f"a synopsis of the rows of {render_duration(window.range)}",))
    return source.state.plus(source.rows)


_EXPIRING: Final = ("approx_count", "approx_sum")
"""Their synopses expire rows within the error allowed."""


def _cells(node: Aggregate, exact: Collection[str]) -> Extent:
    """A cell for each group; of aggregates that need the different values these too. `exact`: approximate ones that are
    answered exactly here.
    """
    cell = Extent("values", ("a cell for each group",)) if node.keys else Extent("fixed", ("one cell",))
    calls = [item.call for item in node.aggregates]
    if any(call.distinct or call.function in (*BY_VALUE, *exact) for call in calls):
        return cell.plus(Extent("values", ("the different values of its aggregates",)))
    return cell


def _distinct(source: _Relation) -> _Relation:
    values = Extent("values", ("the different rows",))
    rows = values.at_most(source.rows)
    return _Relation(rows, source.state.plus(rows), source.only_grows)


def _first(node: Top, source: _Relation) -> _Relation:
    if node.limit is None:
        return _Relation(source.rows, source.state)
    rows = Extent("fixed", (f"{node.limit:,} rows",)).at_most(source.rows)
    return _Relation(rows, source.state.plus(source.rows))
