"""From a bound query to the operators of windows that count rows: each ends at a row; and of frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.algebra.windows import Custom, Delta, RowsSlide, Session, TupleSlide
from headrace.errors import UnsupportedQuery
from headrace.operators.frame_cuts import ByDelta, ByGap
from headrace.operators.frame_windows import FrameWindows
from headrace.operators.row_slides import RowSlides
from headrace.operators.tuple_slides import TupleSlides
from headrace.operators.user_windows import UserWindows

if TYPE_CHECKING:
    from headrace.planner.lower_rows import Lowering


def row_slides(lowering: Lowering) -> RowSlides:
    """`[ROWS n SLIDE m]`."""
    shape, grouped = lowering.shape, lowering.grouped
    assert isinstance(shape.window, RowsSlide)
    kept, finish = lowering.stored() if grouped is None else (tuple(grouped.inputs()), lowering.finish)
    partitions = len(lowering.partition)
    changes = shape.emit is not None and shape.emit.kind != "rstream"
    return RowSlides(
        id=lowering.id,
        query=lowering.name,
        stream=shape.scan.name,
        count=shape.window.count,
        slide=shape.window.slide,
        partitions=partitions,
        bounds_prefix=f"{shape.window_alias}.",
        rows=lowering.layout(kept, tuple(range(partitions)) or None),
        grouped=grouped,
        finish=finish,
        emit_empty=lowering.query.emit_empty,
        telling=lowering.telling if changes else None,
        relations=lowering.relations,
        numbered=shape.window.numbered,
    )


def tuple_slides(lowering: Lowering) -> TupleSlides:
    """`[RANGE r SLIDE n ROWS]`."""
    shape, grouped = lowering.shape, lowering.grouped
    assert isinstance(shape.window, TupleSlide)
    kept, finish = lowering.stored() if grouped is None else (tuple(grouped.inputs()), lowering.finish)
    partitions = len(lowering.partition)
    changes = shape.emit is not None and shape.emit.kind != "rstream"
    return TupleSlides(
        id=lowering.id,
        query=lowering.name,
        stream=shape.scan.name,
        range=shape.window.range,
        every=shape.window.every,
        numbered=shape.window.numbered,
        partitions=partitions,
        bounds_prefix=f"{shape.window_alias}.",
        rows=lowering.layout(kept, tuple(range(partitions)) or None),
        grouped=grouped,
        finish=finish,
        emit_empty=lowering.query.emit_empty,
        telling=lowering.telling if changes else None,
        relations=lowering.relations,
    )


def frame_windows(lowering: Lowering) -> FrameWindows:
    """`[DELTA d ON x]`, `session_window(t, gap)` and `[SESSION gap]`."""
    shape, grouped, window = lowering.shape, lowering.grouped, lowering.shape.window
    assert isinstance(window, Delta | Session)
    kept, finish = lowering.stored() if grouped is None else (tuple(grouped.inputs()), lowering.finish)
    partitions = len(window.partition)
    changes = shape.emit is not None and shape.emit.kind != "rstream"
    meets = lowering.query.revisions is not None
    rows = lowering.layout(kept, None if meets else tuple(range(partitions)) or None)
    return FrameWindows(
        id=lowering.id,
        query=lowering.name,
        stream=shape.scan.name,
        cutter=ByGap(window.gap)
        if isinstance(window, Session)
        else ByDelta(window.threshold, rows.names[partitions]),
        partitions=partitions,
        bounds_prefix=f"{shape.window_alias}.",
        rows=rows,
        grouped=grouped,
        finish=finish,
        emit_empty=lowering.query.emit_empty,
        telling=lowering.telling if changes else None,
        relations=lowering.relations,
    )


def user_windows(lowering: Lowering) -> UserWindows:
    """`[WINDOW name(args)]`.

    Raises `UnsupportedQuery` for EMIT EMPTY, and for changes where WHERE or a join may empty a window: that it was there,
    and what was in the one before is gone, is not known then.
    """
    shape, grouped, window = lowering.shape, lowering.grouped, lowering.shape.window
    assert isinstance(window, Custom)
    if lowering.query.emit_empty:
        raise UnsupportedQuery(
            f"EMIT EMPTY is not available: which windows of {window.name} hold no row is not known",
            remedy="Leave it out.",
        )
    kept, finish = lowering.stored() if grouped is None else (tuple(grouped.inputs()), lowering.finish)
    changes = shape.emit is not None and shape.emit.kind != "rstream"
    rows = lowering.layout(kept, None)
    if changes and rows.above:
        raise UnsupportedQuery(
            f"ISTREAM and DSTREAM over windows of {window.name} go with no WHERE and no join:"
            " a window that these empty would not be seen",
            remedy="Leave out ISTREAM or DSTREAM, or filter in a query that reads this one.",
        )
    return UserWindows(
        id=lowering.id,
        query=lowering.name,
        stream=shape.scan.name,
        window=window,
        on=tuple(map(lowering.rename, window.on)),
        bounds_prefix=f"{shape.window_alias}.",
        rows=rows,
        grouped=grouped,
        finish=finish,
        telling=lowering.telling if changes else None,
        relations=lowering.relations,
    )
