"""Which aggregates have sketches, their errors doubled, and values with counts as JSON. No sketch is imported: a query without
them needs only to know that it has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from headrace.algebra.expressions.aggregates import SKETCHED, AggregateCall, NamedAggregate


def is_synopsis(call: AggregateCall) -> bool:
    """Whether the aggregate has a synopsis in every pane."""
    return (
        call.function in SKETCHED
        or bool(call.against)
        or (call.function == "l2_norm" and call.within is not None)
    )


def uses_synopses(aggregates: Iterable[NamedAggregate]) -> bool:
    """Whether one of the aggregates has a synopsis."""
    return any(is_synopsis(item.call) for item in aggregates)


def with_doubled_errors(aggregates: Sequence[NamedAggregate], doubled: int) -> tuple[NamedAggregate, ...]:
    """The aggregates whose synopses have so many times doubled errors; those that compare rows with their group stay as they are."""
    return tuple(
        replace(item, call=replace(item.call, doubled=doubled))
        if is_synopsis(item.call) and not item.call.against
        else item
        for item in aggregates
    )


def as_json(cells: Sequence[Sequence[tuple[str, int]]]) -> pa.Array:
    """Values with counts as JSON texts; NULL for none."""
    texts = [
        json.dumps([{"item": text, "count": number} for text, number in items], ensure_ascii=False)
        if items
        else None
        for items in cells
    ]
    return pa.array(texts, pa.string())
