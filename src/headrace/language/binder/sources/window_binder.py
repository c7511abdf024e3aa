"""The binder of windows written in FROM: a window clause becomes a window of the algebra over columns of the stream;
a window over any time but the stream's event time is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Final

from headrace.algebra.expressions.expression import Cast, Expression, Literal
from headrace.algebra.functions.resolve import UserFunction
from headrace.algebra.query import QueryScan, StreamScan, UnionAll
from headrace.algebra.windows.window import (
    Custom,
    Delta,
    Landmark,
    Numbering,
    Rows,
    RowsSlide,
    Session,
    TimeRange,
    TimeSlide,
    TupleSlide,
    Unbounded,
    Window,
)
from headrace.algebra.windows.window_kinds import WRITTEN
from headrace.errors import Span, UnsupportedQuery, did_you_mean
from headrace.language.binder.expressions.expression_binder import ExpressionBinder, located
from headrace.language.binder.expressions.scope import BoundSource, Names, Scope
from headrace.language.syntax.ast import (
    Constant,
    DeltaWindow,
    FunctionCall,
    LandmarkWindow,
    Name,
    NamedWindow,
    RangeWindow,
    RowNumber,
    RowsWindow,
    SessionWindow,
    StartingWindow,
    TupleWindow,
    WindowClause,
)
from headrace.language.syntax.refusals import fail, refuse
from headrace.schema import DOUBLE

_OF_SIDES: Final = " A window that slides may be over the event time of a stream that the query joins."


def bind_window(
    clause: WindowClause,
    scan: StreamScan | QueryScan | UnionAll,
    functions: Mapping[str, UserFunction],
    names: Names,
) -> Window:
    """The window of a clause over a stream or a query's results; raises `UserError` for columns that do not fit."""
    match clause:
        case RowsWindow(count=None):
            return Unbounded()
        case RowsWindow(count=int(count)):
            partition = tuple(_partition(scan, functions).bind(item) for item in clause.partition)
            numbered = _numbering(clause.numbered, scan)
            if clause.slide is None:
                return Rows(count, partition)
            return RowsSlide(count, clause.slide, partition, numbered)
        case TupleWindow():
            check_attribute(clause.attribute, scan)
            partition = tuple(_partition(scan, functions).bind(item) for item in clause.partition)
            return TupleSlide(clause.range, clause.every, partition, _numbering(clause.numbered, scan))
        case DeltaWindow():
            binder = _partition(scan, functions, "a DELTA")
            on = binder.bind(clause.on)
            if not (on.type.is_numeric or on.type.name == "VOID"):
                fail(
                    f"a DELTA is measured on a number, not on {on.type}",
                    clause.on.span,
                    "Write for example [DELTA 0.5 ON price].",
                )
            partition = tuple(binder.bind(item) for item in clause.partition)
            return Delta(clause.threshold, on if on.type == DOUBLE else Cast(on, DOUBLE), partition)
        case StartingWindow():
            check_attribute(clause.attribute, scan)
            return TimeSlide(clause.range, clause.slide, clause.origin + clause.range)
        case SessionWindow():
            check_attribute(clause.attribute, scan)
            partition = tuple(_partition(scan, functions).bind(item) for item in clause.partition)
            return Session(clause.gap, partition)
        case NamedWindow():
            check_attribute(clause.attribute, scan)
            binder = _partition(scan, functions, "a WINDOW")
            arguments = tuple(binder.bind(item) for item in clause.on)
            return replace(_registered(clause, names), on=arguments)
        case LandmarkWindow():
            check_attribute(clause.attribute, scan)
            return Landmark(clause.slide, clause.origin)
        case RangeWindow():
            check_attribute(clause.attribute, scan)
            if clause.range is None:
                return Unbounded()
            return (
                TimeRange(clause.range)
                if clause.slide is None
                else TimeSlide(clause.range, clause.slide, clause.origin)
            )
        case _:
            raise AssertionError(clause)


def _registered(clause: NamedWindow, names: Names) -> Custom:
    """The user's window or a built-in one, constructed once to check its constants."""
    registered = names.window(clause.name)
    name, body = (clause.name.lower(), None) if registered is None else (registered.name, registered.body)
    if registered is None and name not in WRITTEN:
        fail(
            f"there is no window '{clause.name}'",
            clause.span,
            "Register its class with hub.register_window first.",
        )
    arguments = []
    for item in clause.arguments:
        if not isinstance(item, Constant):
            fail(
                f"the arguments of the window {name} are constants",
                item.span,
                "Columns follow ON: [WINDOW name(5) ON x].",
            )
        value = float(item.value) if isinstance(item.value, Decimal) else item.value
        arguments.append(Literal(value, DOUBLE if isinstance(item.value, Decimal) else item.type))
    window = Custom(name, tuple(arguments), body)
    with located(clause.span):
        assert window.kind is not None
    return window


def _partition(
    scan: StreamScan | QueryScan | UnionAll,
    functions: Mapping[str, UserFunction],
    what: str = "PARTITION BY",
) -> ExpressionBinder:
    def aggregate(call: FunctionCall) -> Expression:
        fail(f"{what} cannot hold the aggregate {call.name.upper()}", call.span)

    scope = Scope((BoundSource(scan, Unbounded(), bare=True, span=Span(0, 0)),))
    return ExpressionBinder(scope.column, aggregate, functions)


def _numbering(number: RowNumber | None, scan: StreamScan | QueryScan | UnionAll) -> Numbering:
    if number is None:
        return "rank"
    check_attribute(number.attribute, scan)
    if number.attribute is None and isinstance(scan, UnionAll):
        raise UnsupportedQuery(
            "rows of several streams have no common order of arrival to be numbered by",
            remedy="Number them in the order of event time: rank(t), or leave the attribute out.",
        )
    return "row_num" if number.attribute is None else "rank"


def check_attribute(attribute: Name | None, scan: StreamScan | QueryScan | UnionAll) -> None:
    """Raises `UserError` for a window over anything but the event time of its stream."""
    if attribute is None:
        return
    time = scan.time
    *qualifier, name = attribute.parts
    if qualifier and [part.lower() for part in qualifier] != [scan.alias.lower()]:
        fail(
            f"there is no source '{'.'.join(qualifier)}' for this window",
            attribute.span,
            did_you_mean(qualifier[0], [scan.alias]),
        )
    if scan.table.find(name) is None:
        fail(f"there is no column '{name}'", attribute.span, did_you_mean(name, scan.table.names))
    of_query = isinstance(scan, QueryScan)
    if time is None or name.lower() != time.lower():
        said = (
            f"the event time of '{scan.name}' is '{time}'"
            if time
            else f"'{scan.name}' has no column of event times"
        )
        refuse(
            f"windows over '{name}' are not available: {said}",
            attribute.span,
            f"Take the window over '{time}', or make '{name}' the event time of a stream: TIMESTAMP BY {name}."
            if time
            else "Use a bracket without WATTR: FROM s [RANGE 10 MINUTES SLIDE 1 MINUTE]."
            + _OF_SIDES * of_query,
        )
