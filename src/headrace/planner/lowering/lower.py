"""Lowering of a bound query to its operator, by an ordered table of rules: the first that applies builds the
operator. Joins of streams are decomposed before, in `planner/joins`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, Final

from headrace.algebra.query import Query, StreamScan, every_node
from headrace.algebra.windows.window import (
    Custom,
    Delta,
    Landmark,
    Lasting,
    RowsSlide,
    Session,
    TimeRange,
    TimeSlide,
    TupleSlide,
    Unbounded,
)
from headrace.errors import UnsupportedQuery
from headrace.operators.base.group_codes import slot_of_name
from headrace.operators.base.operator import Operator
from headrace.operators.families.family import in_family
from headrace.operators.joins.join_aggregate import JoinAggregate
from headrace.operators.joins.window_join import WindowJoin
from headrace.operators.panes.panes import Panes
from headrace.operators.rows.row_pipeline import relations_of
from headrace.operators.time_windows.alternatives import Alternatives
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.operators.time_windows.window_repair import Repairing
from headrace.planner.joins.join_stage import JOINS
from headrace.planner.joins.outer_joins import OUTER_JOINS
from headrace.planner.joins.side_aggregates import combined_by, join_aggregate, of_sides
from headrace.planner.lowering import approximate
from headrace.planner.lowering.builders.time_operators import (
    passes,
    passing,
    refuse_revisions,
    window_rows,
    with_changes,
)
from headrace.planner.lowering.correlated import check_correlated, has_correlated
from headrace.planner.lowering.lowering_context import Lowering
from headrace.planner.lowering.query_shape import Shape, shape_of
from headrace.planner.lowering.row_steps import row_steps
from headrace.planner.lowering.rstream_now import conditions_in_aggregates
from headrace.planner.lowering.shedding import weighted
from headrace.planner.rule import Rule, always, first_of


def lower(name: str, query: Query, operator_id: str, pairs_of: WindowJoin | None = None) -> Operator:
    """The operator for a query registered under `name`; `operator_id` names its state.

    `pairs_of` is the join whose pairs the query reads, if one join of its own makes them.
    Raises `UnsupportedQuery` with the reason for a query without an operator.
    """
    _refuse_reduced(query)
    lowering = Lowering(name, query, _meant(query), operator_id, pairs_of=pairs_of)
    rule = first_of(LOWERINGS, lowering)
    return rule.build(replace(lowering, rule=rule.name)).in_family()


def _refuse_reduced(query: Query) -> None:
    for scan in every_node(query):
        if isinstance(scan, StreamScan) and scan.reducer:
            raise UnsupportedQuery(
                f"REDUCED BY {scan.reducer} reads a part of the archive: a standing query has every row of its stream",
                remedy="Ask the archive: SELECT … REDUCED BY … WITHIN 2 PERCENT; or leave REDUCED BY out.",
            )


def combinations_of(query: Query, pairs_of: WindowJoin) -> frozenset[type]:
    """How a query over the pairs of a join combines columns of two of its sides in aggregates."""
    grouped = Lowering("", query, _meant(query), "", pairs_of=pairs_of).grouped
    return frozenset() if grouped is None else combined_by(pairs_of, grouped.aggregates)


def _meant(query: Query) -> Shape:
    """The clauses of a query, exact where an approximate answer saves nothing."""
    shape = conditions_in_aggregates(shape_of(query))
    if not approximate.has_approximate(shape):
        return shape
    if approximate.from_synopses(query, shape) or approximate.at_every_instant(query, shape):
        return shape
    return approximate.in_panes(shape) if _has_panes(shape) else approximate.exactly(shape)


def _has_panes(shape: Shape) -> bool:
    """Whether windows are aggregated from panes: the time of a row alone determines its windows."""
    return (
        shape.aggregate is not None
        and shape.bounds is None
        and isinstance(shape.window, TimeSlide | Landmark)
    )


# ---------------------------------------------------------------------------------------------------- aggregates in panes


def _pane_aggregate(lowering: Lowering) -> PaneAggregate:
    query, shape, grouped = lowering.query, lowering.shape, lowering.grouped
    assert grouped is not None
    assert isinstance(shape.window, TimeSlide | Landmark)
    finish = lowering.finish
    meets = shape.emits_changes or query.revisions is not None or query.repair or query.has_alternatives
    single = finish.needs_whole_window or not grouped.keys or meets
    steps = row_steps(shape, separate=query.emit_empty)
    aggregate = PaneAggregate(
        id=lowering.id,
        query=lowering.name,
        stream=shape.scan.name,
        panes=Panes.of(shape.window),
        range=shape.window.range if isinstance(shape.window, TimeSlide) else None,
        window_alias=shape.window_alias,
        keys=grouped.keys,
        aggregates=grouped.aggregates,
        finish=finish,
        steps=steps,
        below=1 if shape.before and query.emit_empty else 0,
        single_slot=slot_of_name(lowering.id) if single else None,
        emit_empty=query.emit_empty,
        revisions=query.revisions,
        relations=relations_of(steps),
        rule=lowering.rule,
    )
    return in_family(aggregate)


def _panes(lowering: Lowering) -> Operator:
    return with_changes(lowering, _pane_aggregate(lowering))


def _weighted_panes(lowering: Lowering) -> Operator:
    panes = _pane_aggregate(replace(lowering, shape=weighted(lowering.shape)))
    panes = replace(panes, sheds=True)
    if not lowering.query.repair:
        return panes
    return Repairing(panes.unshared(), lowering.slot, lowering.query.settles)


def _alternatives(lowering: Lowering) -> Alternatives:
    shapes = approximate.exactly(lowering.shape), lowering.shape
    if lowering.query.shedding:
        shapes = weighted(shapes[0]), weighted(approximate.weighing(shapes[1]))
    exact, sketching = (
        replace(_pane_aggregate(replace(lowering, shape=shape)).unshared(), sheds=lowering.query.shedding)
        for shape in shapes
    )
    return Alternatives(exact, sketching, lowering.slot)


def _is_of_sides(lowering: Lowering) -> bool:
    """Whether the pairs that are aggregated need not be made."""
    shape, join = lowering.shape, lowering.pairs_of
    if join is None or lowering.grouped is None:
        return False
    steps = (*shape.before, *shape.where, *shape.joins, *shape.semijoin_columns)
    return not steps and of_sides(join, lowering.grouped)


def _of_sides(lowering: Lowering) -> JoinAggregate:
    assert lowering.pairs_of is not None
    assert lowering.grouped is not None
    finish, alias = lowering.finish, lowering.shape.window_alias
    operator = join_aggregate(lowering.id, lowering.name, lowering.pairs_of, lowering.grouped, finish, alias)
    return replace(operator, rule=lowering.rule)


def _approximate_windows(lowering: Lowering) -> Operator:
    assert lowering.grouped is not None
    counting = replace(lowering, shape=approximate.counting_exactly(lowering.shape))
    operator: Operator = _with_synopses().approximate_windows(
        _pane_aggregate(counting), lowering.grouped.aggregates, _doubled(lowering.query)
    )
    return operator


def _approximate_instants(lowering: Lowering) -> Operator:
    assert lowering.grouped is not None
    counting = replace(lowering, shape=approximate.with_bounds(lowering.shape))
    answering = _at_instants().instant_aggregate(counting)
    operator: Operator = _with_synopses().approximate_instants(
        answering, lowering.grouped.aggregates, _doubled(lowering.query)
    )
    return operator


def _doubled(query: Query) -> int | None:
    """How often the errors of a new operator are doubled; None where they never are."""
    return None if query.quality is None or query.quality.error is None else 0


# ------------------------------------------------------------------------------------------------------- rows, and refusals


def _rows_and_groups(lowering: Lowering) -> Operator:
    check_correlated(lowering.query, lowering.shape)
    regrouping = replace(lowering, regroups=True)
    return first_of(KEPT, regrouping).build(regrouping)


def _refuse_late(lowering: Lowering) -> Operator:
    scan = lowering.shape.scan
    assert isinstance(scan, StreamScan)
    raise UnsupportedQuery(
        f"{scan.channel.upper()} rows come after their time: no window holds them",
        remedy="Select them without a window and without aggregates.",
    )


def _bounds_with_other_windows(lowering: Lowering) -> bool:
    shape = lowering.shape
    return shape.bounds is not None and not isinstance(shape.window, TimeRange | Unbounded | Lasting)


def _refuse_bounds(lowering: Lowering) -> Operator:  # noqa: ARG001
    raise UnsupportedQuery(
        "BEGIN ... END with a window that slides or counts rows is a condition of WHERE on the stream's time column",
        remedy="Compare that column in WHERE, or leave out the window or its SLIDE.",
    )


def _emits_without_end(lowering: Lowering) -> bool:
    return lowering.emit_mode == "rstream" and lowering.shape.window != TimeRange(0)


def _refuse_rstream(lowering: Lowering) -> Operator:  # noqa: ARG001
    raise UnsupportedQuery("RSTREAM needs a window with SLIDE, or [NOW]")


def _window_is(*kinds: type) -> Callable[[Lowering], bool]:
    return lambda lowering: isinstance(lowering.shape.window, kinds)


def _by_rows() -> ModuleType:
    """The builders of operators whose windows depend on rows, which are imported with the first such query."""
    from headrace.planner.lowering.builders import data_driven_windows  # noqa: PLC0415

    return data_driven_windows


def _at_instants() -> ModuleType:
    """The same of operators of relations at every instant."""
    from headrace.planner.lowering.builders import instant_operators  # noqa: PLC0415

    return instant_operators


def _with_synopses() -> ModuleType:
    """The same of operators with exponential histograms."""
    from headrace.planner.lowering.builders import synopsis_operators  # noqa: PLC0415

    return synopsis_operators


# --------------------------------------------------------------------------------------------------------------- the tables

KEPT: Final[tuple[Rule[Lowering, Operator], ...]] = (
    Rule(
        "bounds",
        "BEGIN … END moves the ends of a window at every instant, and no others",
        when=_bounds_with_other_windows,
        build=_refuse_bounds,
    ),
    Rule(
        "rows in windows",
        "the rows of a window are the answer when it closes",
        when=_window_is(TimeSlide, Landmark),
        build=window_rows,
    ),
    Rule(
        "revised sessions",
        "a late row may join two sessions, so their rows are kept while one may come",
        when=lambda q: isinstance(q.shape.window, Session) and q.query.revisions is not None,
        build=lambda q: _by_rows().revised_sessions(q),
    ),
    Rule(
        "revisions",
        "late rows change windows of time, sessions and bare streams alone",
        when=lambda q: q.query.revisions is not None,
        build=refuse_revisions,
    ),
    Rule(
        "windows of rows",
        "a window ends at every m-th row, and is made of panes of ranks",
        when=_window_is(RowsSlide),
        build=lambda q: _by_rows().row_slides(q),
    ),
    Rule(
        "windows that end at rows",
        "which rows end a window is known when punctuation has passed them",
        when=_window_is(TupleSlide),
        build=lambda q: _by_rows().tuple_slides(q),
    ),
    Rule(
        "user windows",
        "a class determines the windows of a row when it is scanned",
        when=_window_is(Custom),
        build=lambda q: _by_rows().user_windows(q),
    ),
    Rule(
        "frames",
        "a window continues until a row begins the next one, so one of each partition is open",
        when=_window_is(Delta, Session),
        build=lambda q: _by_rows().frame_windows(q),
    ),
    Rule(
        "rstream",
        "the whole of a relation at every instant never ends",
        when=_emits_without_end,
        build=_refuse_rstream,
    ),
    Rule(
        "groups at instants",
        "the answer is a relation that changes when a row comes or expires, group by group",
        when=lambda q: q.grouped is not None,
        build=lambda q: _at_instants().instant_aggregate(q),
    ),
    Rule(
        "rows at instants",
        "the answer is a relation that changes when a row comes or expires",
        when=always,
        build=lambda q: _at_instants().instant_rows(q),
    ),
)
"""Operators that keep rows, or fold them otherwise than in panes of time."""

LOWERINGS: Final[tuple[Rule[Lowering, Operator], ...]] = (
    Rule(
        "bare stream",
        "rows of a bare stream are answers as they come, in any order, and nothing is kept",
        when=passes,
        build=passing,
    ),
    Rule(
        "late rows",
        "windows are closed by the time such rows come",
        when=lambda q: not q.of_accepted,
        build=_refuse_late,
    ),
    Rule(
        "shedding",
        "rows represent those that were shed, so panes keep sums of weighted rows",
        when=lambda q: q.query.shedding and not q.query.has_alternatives,
        build=_weighted_panes,
    ),
    Rule(
        "alternatives",
        "panes are exact, or sketches in an overload, and a window that holds both is answered from sketches",
        when=lambda q: q.query.has_alternatives,
        build=_alternatives,
    ),
    Rule(
        "synopses",
        "a window has more panes than a synopsis needs buckets for the error allowed",
        when=lambda q: approximate.from_synopses(q.query, q.shape),
        build=_approximate_windows,
    ),
    Rule(
        "synopses at instants",
        "a synopsis expires rows within the error allowed, so no row is kept",
        when=lambda q: approximate.at_every_instant(q.query, q.shape),
        build=_approximate_instants,
    ),
    Rule(
        "rows and groups",
        "an aggregate compares rows with their group, so rows are kept and grouped when a window is known",
        when=lambda q: has_correlated(q.shape),
        build=_rows_and_groups,
    ),
    Rule(
        "products of sides",
        "a window holds all pairs of its rows of equal keys, so partials of each side are multiplied, in place of pairs",
        when=_is_of_sides,
        build=_of_sides,
    ),
    Rule(
        "panes",
        "every window is made of panes, and so is every aggregate",
        when=lambda q: _has_panes(q.shape),
        build=_panes,
    ),
    *KEPT,
)
"""All rules, in order: special cases come first."""

RULES: Final[Mapping[str, Rule[Any, Any]]] = {
    **{rule.name: rule for rule in LOWERINGS},
    **{rule.name: rule for rule in JOINS},
    **{rule.name: rule for rule in OUTER_JOINS},
}
"""Every rule by its name, as operators store it."""
