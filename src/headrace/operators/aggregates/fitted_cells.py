"""Cells whose sketches were made with a smaller error than a layout has now: the same cells with sketches of the layout's size."""

from __future__ import annotations

import pyarrow as pa

from headrace.operators.aggregates.cell_table import Layout
from headrace.operators.base.group_codes import flat
from headrace.operators.partials.synopsis_partial import Synopsis


def kept_bytes(layout: Layout) -> float:
    """About the bytes of the sketches of a cell up to which they are not made smaller."""
    partials = (column.partial for column in layout.partial_columns)
    return float(sum(partial.kind.kept_bytes for partial in partials if isinstance(partial, Synopsis)))


def fitted(layout: Layout, cells: pa.Table) -> pa.Table:
    """A table of a layout, in which no sketch is more accurate than those that are made now."""
    for number, column in enumerate(layout.partial_columns):
        if isinstance(column.partial, Synopsis) and cells.num_rows:
            (name,) = layout.cell_names(number)
            at = cells.schema.get_field_index(name)
            blobs = flat(cells.column(name)).to_numpy(zero_copy_only=False)
            coarse = pa.array(column.partial.kind.fitted(blobs), pa.large_binary())
            cells = cells.set_column(at, cells.schema.field(at), coarse)
    return cells
