"""What does `BEGIN b END e` mean beside a window that slides or counts rows? That both apply (docs/semantics.md, Bounds)."""

from __future__ import annotations

from headrace.algebra.expressions import Call, Expression, Literal
from headrace.algebra.query import Ago, StreamScan, UnionAll
from headrace.algebra.windows import TimeRange, Unbounded
from headrace.language.scope import BoundSource
from headrace.schema import BOOLEAN
from headrace.time import Instant


def condition(bounds: tuple[Instant | Ago, Instant | Ago], stream: BoundSource) -> Expression | None:
    """The bounds as a condition on the rows of such a window, to be added to WHERE.

    None where they are none: over other windows, with NOW, and where the stream's time is not one of its columns.
    """
    begin, end = bounds
    if isinstance(stream.window, TimeRange | Unbounded) or isinstance(begin, Ago) or isinstance(end, Ago):
        return None
    time = stream.find(stream.scan.time or "") if isinstance(stream.scan, StreamScan | UnionAll) else None
    if time is None:
        return None
    low = Call(">=", (time, Literal(begin, time.type)), BOOLEAN)
    return Call("and", (low, Call("<=", (time, Literal(end, time.type)), BOOLEAN)), BOOLEAN)
