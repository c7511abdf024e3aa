"""The parser of WITH QOS: graphs of utility by delay, by loss and by error, checked point by point, the importance of rows
by the value of a column, and the utility of answers from sketches.

    WITH QOS (delay (1 AT 2 SECONDS, 0 AT 10 SECONDS),
              loss (1 AT 0 PERCENT, 0.8 AT 90 PERCENT),
              value price (0.1 BELOW 100, 1 OTHERWISE))
    WITH QOS (delay (1 AT 2 SECONDS, 0 AT 10 SECONDS), sketches 0.9)
    WITH QOS (error (1 AT 1 TIMES, 0.8 AT 8 TIMES))
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final, NoReturn

from headrace.algebra.quality_of_service import Importance, Point, QualityOfService, UtilityGraph, faults
from headrace.errors import Span, did_you_mean
from headrace.language.parser.durations import duration
from headrace.language.syntax.ast import QualityClause
from headrace.language.syntax.cursor import Cursor
from headrace.time import SECOND

_GRAPHS: Final = ("delay", "loss", "value", "sketches", "error")
_EXAMPLE: Final = (
    "WITH QOS (delay (1 AT 2 SECONDS, 0 AT 10 SECONDS), loss (1 AT 0 PERCENT, 0.8 AT 90 PERCENT))"
)


def quality_clause(cursor: Cursor, start: Span) -> QualityClause:
    """Pass the parentheses after WITH QOS, which began at `start`.

    Raises `UserError` at the point of a graph that is wrong.
    """
    if not cursor.accept_sign("("):
        raise cursor.expected("'(' after QOS", f"Write {_EXAMPLE}.")
    spans: dict[str, Span] = {}
    delay = loss = importance = sketches = error = None
    while True:
        at, name = cursor.token.span, cursor.token.text.lower()
        if name not in _GRAPHS:
            remedy = did_you_mean(name, _GRAPHS) or f"Write {_EXAMPLE}."
            raise cursor.expected("delay, loss, value, sketches or error", remedy)
        if name in spans:
            raise cursor.error(f"{name} is given twice", at, "Leave one of them out.")
        cursor.advance()
        if name == "delay":
            delay = _graph(cursor, name, _seconds)
        elif name == "loss":
            loss = _graph(cursor, name, _share)
        elif name == "sketches":
            sketches = _utility(cursor)
        elif name == "error":
            error = _graph(cursor, name, _times)
        else:
            importance = _importance(cursor)
        spans[name] = cursor.since(at)
        if not cursor.accept_sign(","):
            break
    cursor.expect_sign(")", " at the end of QOS")
    return QualityClause(
        QualityOfService(delay, loss, importance, sketches, error), spans, cursor.since(start)
    )


def _graph(cursor: Cursor, name: str, read_position: Callable[[Cursor], float]) -> UtilityGraph:
    """`(1 AT 2 SECONDS, 0 AT 10 SECONDS)`: its points, checked."""
    cursor.expect_sign("(", f" after {name}")
    points: list[Point] = []
    places: list[Span] = []
    while True:
        at = cursor.token.span
        utility = _number(cursor, "a utility from 0 to 1")
        cursor.expect("AT", purpose=" after the utility")
        points.append((read_position(cursor), utility))
        places.append(cursor.since(at))
        if not cursor.accept_sign(","):
            break
    cursor.expect_sign(")", f" after the points of {name}")
    for number, reason, remedy in faults(points):
        raise cursor.error(reason, places[number], remedy)
    if name == "loss" and points[0][0] != 0:
        raise cursor.error(
            f"loss begins at {points[0][0] * 100:g} percent", places[0], "Begin with 1 AT 0 PERCENT."
        )
    if name == "error" and points[0][0] != 1:
        raise cursor.error(
            f"error begins at {points[0][0]:g} times the one of WITHIN", places[0], "Begin with 1 AT 1 TIMES."
        )
    if name == "error" and points[-1][0] < 2:
        raise cursor.error(
            "an error is doubled when memory is short, and the graph ends before",
            places[-1],
            "End with at least 2 TIMES: the utility there.",
        )
    return UtilityGraph(tuple(points))


def _seconds(cursor: Cursor) -> float:
    at = cursor.token.span
    length = duration(cursor, "a delay")
    if length < 0:
        raise cursor.error("a delay cannot be less than 0", cursor.since(at))
    return length / SECOND


def _share(cursor: Cursor) -> float:
    at = cursor.token.span
    share = _number(cursor, "the percentage of rows that are lost") / 100
    cursor.expect("PERCENT", purpose=" after the number")
    if share > 1:
        raise cursor.error(
            "more rows cannot be lost than there are", cursor.since(at), "A loss is at most 100 PERCENT."
        )
    return share


def _times(cursor: Cursor) -> float:
    times = _number(cursor, "how many times the error of WITHIN")
    cursor.expect("TIMES", purpose=" after the number")
    return times


def _utility(cursor: Cursor) -> float:
    at = cursor.token.span
    utility = _number(cursor, "the utility of answers from sketches, from 0 to 1")
    if utility > 1:
        raise cursor.error(
            f"the utility {utility:g} is not between 0 and 1", at, "1 is as good as an exact answer."
        )
    return utility


def _importance(cursor: Cursor) -> Importance:
    """`price (0.1 BELOW 100, 1 OTHERWISE)`."""
    column = cursor.name("the column that value is about")
    cursor.expect_sign("(", f" after value {column}")
    levels: list[float] = []
    bounds: list[float] = []
    while True:
        at = cursor.token.span
        level = _number(cursor, "an importance from 0 to 1")
        if level > 1:
            raise cursor.error(f"the importance {level:g} is not between 0 and 1", at, "1 is the greatest.")
        levels.append(level)
        if cursor.accept("OTHERWISE"):
            break
        cursor.expect("BELOW", purpose=" or OTHERWISE")
        at = cursor.token.span
        sign = -1 if cursor.accept_sign("-") else 1
        bounds.append(sign * _number(cursor, f"a value of {column}"))
        if any(later <= earlier for earlier, later in pairwise(bounds)):
            raise cursor.error("the values are not in ascending order", cursor.since(at), "Sort them.")
        if not cursor.accept_sign(","):
            _without_otherwise(cursor)
    if not bounds:
        raise cursor.error(
            "all rows are equally important", at, "Leave value out, or give an interval: 0.1 BELOW 100."
        )
    if not any(levels):
        raise cursor.error("no row is important", at, "Give an interval the importance 1.")
    cursor.expect_sign(")", " after OTHERWISE")
    return Importance(column, tuple(bounds), tuple(levels))


def _without_otherwise(cursor: Cursor) -> NoReturn:
    raise cursor.expected("a comma", "The last importance is that of all other rows: 1 OTHERWISE.")


def _number(cursor: Cursor, what: str) -> float:
    """Pass a plain number of at least 0."""
    token = cursor.token
    if token.kind != "number":
        raise cursor.expected(what)
    try:
        value = float(token.text)
    except ValueError:
        raise cursor.error(f"'{token.text[:30]}' is not a plain number", token.span) from None
    cursor.advance()
    return value
