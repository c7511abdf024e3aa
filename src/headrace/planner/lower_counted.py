"""From a bound query to the operators of windows that count rows: each ends at a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.algebra.windows import Delta, RowsSlide, TupleSlide
from headrace.operators.delta_windows import DeltaWindows
from headrace.operators.row_slides import RowSlides
from headrace.operators.tuple_slides import TupleSlides

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


def delta_windows(lowering: Lowering) -> DeltaWindows:
    """`[DELTA d ON x]`."""
    shape, grouped = lowering.shape, lowering.grouped
    assert isinstance(shape.window, Delta)
    kept, finish = lowering.stored() if grouped is None else (tuple(grouped.inputs()), lowering.finish)
    partitions = len(shape.window.partition)
    changes = shape.emit is not None and shape.emit.kind != "rstream"
    return DeltaWindows(
        id=lowering.id,
        query=lowering.name,
        stream=shape.scan.name,
        threshold=shape.window.threshold,
        partitions=partitions,
        bounds_prefix=f"{shape.window_alias}.",
        rows=lowering.layout(kept, tuple(range(partitions)) or None),
        grouped=grouped,
        finish=finish,
        emit_empty=lowering.query.emit_empty,
        telling=lowering.telling if changes else None,
        relations=lowering.relations,
    )
