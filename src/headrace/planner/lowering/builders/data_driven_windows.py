"""Operators of windows whose bounds depend on rows, as the rules of `lower.py` build them: `[ROWS n SLIDE m]`,
`[RANGE r SLIDE n ROWS]`, DELTA, sessions and their revisions; and of windows of users' classes.
"""

from __future__ import annotations

from headrace.algebra.windows.window import Custom, Delta, RowsSlide, Session, TupleSlide
from headrace.errors import UnsupportedQuery
from headrace.operators.row_windows.frame_cuts import ByDelta, ByGap
from headrace.operators.row_windows.frame_windows import FrameWindows
from headrace.operators.row_windows.partitioned_rows import PartitionedRows
from headrace.operators.row_windows.row_slides import RowSlides
from headrace.operators.row_windows.session_revisions import RevisingSessions
from headrace.operators.row_windows.tuple_slides import TupleSlides
from headrace.operators.row_windows.user_windows import UserWindows
from headrace.planner.lowering.lowering_context import Lowering


def spec_of(lowering: Lowering) -> PartitionedRows:
    """The stored columns of these operators, and the steps over them. Revisions need all partitions in one slot."""
    shape, window = lowering.shape, lowering.shape.window
    assert isinstance(window, RowsSlide | TupleSlide | Delta | Session | Custom)
    partitions = 0 if isinstance(window, Custom) else len(window.partition)
    by_partition = tuple(range(partitions)) if lowering.query.revisions is None else ()
    rows, finish = lowering.stored_rows(by_partition or None)
    return PartitionedRows(
        id=lowering.id,
        query=lowering.name,
        stream=shape.scan.name,
        partitions=partitions,
        bounds_prefix=f"{shape.window_alias}.",
        rows=rows,
        grouped=lowering.grouped,
        finish=finish,
        emit_empty=lowering.query.emit_empty,
        emit_mode=lowering.emit_mode if shape.emits_changes else None,
        relations=lowering.relations,
        rule=lowering.rule,
    )


def row_slides(lowering: Lowering) -> RowSlides:
    """`[ROWS n SLIDE m]`."""
    window = lowering.shape.window
    assert isinstance(window, RowsSlide)
    return RowSlides(spec_of(lowering), window.count, window.slide, window.numbered)


def tuple_slides(lowering: Lowering) -> TupleSlides:
    """`[RANGE r SLIDE n ROWS]`."""
    window = lowering.shape.window
    assert isinstance(window, TupleSlide)
    return TupleSlides(spec_of(lowering), window.range, window.every, window.numbered)


def frame_windows(lowering: Lowering) -> FrameWindows:
    """`[DELTA d ON x]`, `session_window(t, gap)` and `[SESSION gap]`."""
    window, spec = lowering.shape.window, spec_of(lowering)
    if isinstance(window, Session):
        return FrameWindows(spec, ByGap(window.gap))
    assert isinstance(window, Delta)
    return FrameWindows(spec, ByDelta(window.threshold, spec.rows.names[spec.partitions]))


def revised_sessions(lowering: Lowering) -> RevisingSessions:
    """Sessions WITH REVISIONS."""
    window, revisions = lowering.shape.window, lowering.query.revisions
    assert isinstance(window, Session)
    assert revisions is not None
    return RevisingSessions(frame_windows(lowering), window.gap, revisions)


def user_windows(lowering: Lowering) -> UserWindows:
    """`[WINDOW name(args)]`.

    Raises `UnsupportedQuery` for EMIT EMPTY, and for changes where WHERE or a join may empty a window: the empty window,
    and the retractions at it, are then not known.
    """
    window = lowering.shape.window
    assert isinstance(window, Custom)
    if lowering.query.emit_empty:
        raise UnsupportedQuery(
            f"EMIT EMPTY is not available: which windows of {window.name} hold no row is not known",
            remedy="Leave it out.",
        )
    spec = spec_of(lowering)
    if spec.emit_mode is not None and spec.rows.above:
        raise UnsupportedQuery(
            f"ISTREAM and DSTREAM over windows of {window.name} go with no WHERE and no join:"
            " a window that these empty would not be seen",
            remedy="Leave out ISTREAM or DSTREAM, or filter in a query that reads this one.",
        )
    return UserWindows(spec, window, tuple(map(lowering.rename, window.on)))
