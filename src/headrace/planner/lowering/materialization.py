"""The choice of what is stored of a query between two INVOKEs (nothing, a bitmap of the rows that satisfy its
conditions, or the answer), and the operator for it.

The user's choice applies, where it is possible; else the one that was measured to be best. A query whose window INVOKE can
apply stores its selection as bitmaps (`partial`): an eighth of a byte per row and query, and no work as time advances.
Source: PSoup (Chandrasekaran, Franklin 2002), section 4.1 and the conclusions of section 5.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias
from typing import Literal as Choice

from headrace.algebra.query import Ago, Query, StreamScan
from headrace.algebra.windows.window import Changing, Lasting, TimeRange, Unbounded
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.operators.base.operator import Operator
from headrace.operators.joins.window_join import WindowJoin
from headrace.operators.on_demand.selection import ALWAYS, Answer, Selection, WindowClause
from headrace.operators.rows.row_pipeline import RowFilter
from headrace.planner.joins.stream_joins import joins_streams
from headrace.planner.lowering.approximate import exactly, has_approximate
from headrace.planner.lowering.correlated import check_correlated, has_correlated
from headrace.planner.lowering.lower import lower
from headrace.planner.lowering.lowering_context import Lowering
from headrace.planner.lowering.query_shape import Shape, shape_of
from headrace.time import Duration

Materialize: TypeAlias = Choice["none", "partial", "complete"]
_NUMBERED: Final = re.compile(r"q\d+")


@dataclass(frozen=True, slots=True)
class Source:
    """The other inputs of the choice: the rows in the archive of its stream, and its retention; or the join of its own whose
    pairs it reads.
    """

    archived: bool
    retain: Duration | None = None
    pairs_of: WindowJoin | None = None


def materialized(
    name: str, query: Query, operator_id: str, materialize: Materialize | None, source: Source
) -> Operator:
    """The operator of a query with the materialization that the user chose, or the best one.

    Raises `UserError` where the user's choice is not possible for this query.
    """
    if materialize == "complete" or (materialize is None and query.emission != "relation"):
        return lower(name, query, operator_id, source.pairs_of)
    shape = shape_of(query)
    obstacle = _obstacle(query, shape, operator_id, source)
    if materialize is None:
        if shape.bounds is None or obstacle is not None or _looks_beyond(shape, source):
            return lower(name, query, operator_id)
        return _selection(
            name, query, shape, operator_id, "partial", "chosen: asked less often than rows arrive"
        )
    if obstacle is not None:
        raise UserError(
            f"materialize '{materialize}' is not possible: {obstacle}",
            remedy="Leave the option out, or write (materialize 'complete').",
        )
    return _selection(name, query, shape, operator_id, materialize, "as the query specifies")


def asked_later(name: str, query: Query, operator_id: str, source: Source) -> Selection | None:
    """The query with nothing materialized; None where INVOKE could not answer it."""
    if joins_streams(query):
        return None
    shape = shape_of(query)
    if _obstacle(query, shape, operator_id, source) is not None:
        return None
    return _selection(name, query, shape, operator_id, "none", "until the archive is read")


def cheaper_materialization(operator: Operator, query: Query, source: Source) -> Materialize | None:
    """A cheaper materialization of a query with `BEGIN … END` that gives the same answers; None without one."""
    if (selection := operator.on_request) is not None:
        return "partial" if selection.materialize == "partial" else None
    if joins_streams(query):
        return None
    shape = shape_of(query)
    if shape.bounds is None or _obstacle(query, shape, operator.id, source) is not None:
        return None
    return None if _looks_beyond(shape, source) else "complete"


def _obstacle(query: Query, shape: Shape, operator_id: str, source: Source) -> str | None:
    """The reason why the window of this query cannot be applied at INVOKE; None when it can."""
    if isinstance(shape.window, Lasting | Changing):
        return (
            "it joins streams, or reads a relation that changes: no bitmap over one archive shows what passes"
        )
    if query.emission != "relation" and isinstance(shape.window, Unbounded):
        return "its rows are emitted as they arrive, not asked for"
    if query.emission != "relation":
        return "its windows are emitted when they close, not asked for"
    if not isinstance(shape.window, Unbounded | TimeRange):
        return "its window is not one of time, and ends where rows do"
    if (
        not isinstance(shape.scan, StreamScan)
        or shape.scan.channel != "rows"
        or not _NUMBERED.fullmatch(operator_id)
    ):
        return "it does not read the rows of a stream"
    if shape.joins or shape.semijoin_columns:
        return "it reads a relation, whose version depends on when a row came"
    return None if source.archived else "its stream has no archive of its own to fetch rows from"


def _looks_beyond(shape: Shape, source: Source) -> bool:
    """Whether a window may hold rows that have expired from the archive."""
    if source.retain is None:
        return False
    reach = [] if not isinstance(shape.window, TimeRange) else [shape.window.range]
    if shape.bounds is not None and isinstance(shape.bounds.begin, Ago):
        reach.append(shape.bounds.begin.duration)
    return not reach or min(reach) > source.retain


def _selection(
    name: str, query: Query, shape: Shape, operator_id: str, materialize: Choice["none", "partial"], why: str
) -> Selection:
    if has_correlated(shape):
        check_correlated(query, shape)
    shape = exactly(shape) if has_approximate(shape) else shape
    aggregate = shape.aggregate
    lowering = Lowering(name, query, shape, operator_id, regroups=True)
    columns, finish = lowering.stored()
    return Selection(
        id=operator_id,
        query=name,
        stream=shape.scan.name,
        materialize=materialize,
        why=why,
        window=_window(shape),
        steps=tuple(step for step in (*lowering.below, *lowering.above) if isinstance(step, RowFilter)),
        answer=Answer(columns, finish, aggregate is not None and not aggregate.keys),
    )


def _window(shape: Shape) -> WindowClause:
    length = shape.window.range if isinstance(shape.window, TimeRange) else None
    if shape.bounds is None:
        return WindowClause(ALWAYS, Ago(), length)
    return WindowClause(shape.bounds.begin, shape.bounds.end, length)
