"""The parser of windows: brackets after a stream's name; TUMBLE, HOP, CUMULATE and SESSION in FROM; `window(…)` and
`session_window(…)` in GROUP BY; `[RANGE d]` of INVOKE.
"""

from __future__ import annotations

from headrace.algebra.windows.window import WHOLE
from headrace.errors import Span, UserError
from headrace.language.parser.durations import duration
from headrace.language.parser.expressions import expression
from headrace.language.parser.literals import interval_text
from headrace.language.parser.primaries import WINDOWS, column
from headrace.language.parser.window_options import (
    Options,
    expressions,
    measured_first,
    measured_in_both,
    measured_in_rows,
    measured_in_time,
    options,
    positive,
    positive_duration,
)
from headrace.language.syntax.ast import (
    Constant,
    DeltaWindow,
    Expr,
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
from headrace.language.syntax.cursor import Cursor
from headrace.schema import INTERVAL, STRING
from headrace.time import Duration

AVAILABLE = "Available are [RANGE d], [RANGE d SLIDE e], [RANGE d SLIDE n ROWS], [RANGE TUMBLING d], [RANGE TUMBLING ALL], [ROWS n], [ROWS n SLIDE m], [PARTITION BY a ROWS n], [SESSION gap], [DELTA d ON x], [WINDOW name(…)], [NOW], [RANGE UNBOUNDED] and [LANDMARK SLIDE e]."


def bracket(cursor: Cursor) -> WindowClause:
    """Pass a window in brackets; the opening one is at the cursor.

    Raises `UserError` for anything else, `UnsupportedQuery` for windows that are not available yet.
    """
    start = cursor.expect_sign("[").span
    if cursor.accept("NOW"):
        cursor.expect_sign("]", " after NOW")
        return RangeWindow(0, None, 0, None, cursor.since(start))
    first = measured_first(cursor)
    if cursor.accept("RANGE"):
        window = _range(cursor, start, first)
    elif cursor.accept("ROWS"):
        window = _rows(cursor, start, _row_count(cursor), (), first)
    elif first.attribute is not None:
        raise cursor.expected("RANGE or ROWS after what the window is measured on")
    elif cursor.accept("PARTITION", "BY"):
        window = _partitioned(cursor, start)
    elif cursor.accept("DELTA"):
        window = _delta(cursor, start, ())
    elif cursor.accept("SESSION"):
        window = _session(cursor, start, ())
    elif cursor.accept("LANDMARK"):
        window = _landmark(cursor, start, first)
    elif cursor.accept("WINDOW"):
        window = _named(cursor, start)
    else:
        raise cursor.expected("RANGE, ROWS, PARTITION BY, LANDMARK, SESSION, DELTA, WINDOW or NOW", AVAILABLE)
    cursor.expect_sign("]", " or SLIDE, ORIGIN, WATTR, RATTR, SATTR, PA")
    return window


def part_of_window(cursor: Cursor) -> Duration:
    """Pass `[RANGE d]` after the name of a query: the length of the part of its window.

    Raises `UserError` for any other window.
    """
    window = bracket(cursor)
    if isinstance(window, RangeWindow) and window.range and window.slide is None and window.attribute is None:
        return window.range
    raise cursor.error(
        "a part of a query's window is [RANGE d]: how far it reaches back from where the query's window ends",
        window.span,
        "INVOKE name [RANGE 10 MINUTES];",
    )


def _range(cursor: Cursor, start: Span, first: Options) -> WindowClause:
    if cursor.accept("UNBOUNDED"):
        if first.attribute is not None:
            raise cursor.error("an UNBOUNDED window has no measure", cursor.since(start), "Leave WATTR out.")
        return _unbounded(cursor, start)
    if cursor.accept("ALL"):
        return _landmark(cursor, start, first)
    if cursor.token.kind == "number" and cursor.ahead().upper in ("ROWS", "ROW"):
        count = _row_count(cursor)
        cursor.advance()
        return _rows(cursor, start, count, (), first)
    tumbling = cursor.accept("TUMBLING")
    if tumbling and cursor.accept("ALL"):
        return RangeWindow(WHOLE.range, WHOLE.slide, WHOLE.anchor, None, cursor.since(start))
    began = cursor.token.span
    length = duration(cursor, "the range of the window")
    extent = cursor.since(began)
    read = options(cursor, first)
    if length < 0 or (length == 0 and (tumbling or read.slides)):
        raise cursor.error(
            "the range of a window that slides must be longer than 0"
            if length == 0
            else "the range of the window must not be negative",
            extent,
            "[RANGE 0 SECONDS], like [NOW], holds the rows of an instant, and has no SLIDE.",
        )
    if tumbling and read.slides:
        raise cursor.error("a TUMBLING window has no SLIDE of its own", cursor.since(start))
    if read.slide_rows is not None:
        return _tuple_slide(cursor, start, length, read)
    if read.partition:
        raise cursor.error(
            "PA belongs to windows of ROWS",
            cursor.since(start),
            "For a window of time GROUP BY gives the same answer.",
        )
    slide = length if tumbling else read.slide
    if read.origin is not None and slide is None:
        raise cursor.error("ORIGIN belongs to windows with a SLIDE", cursor.since(start))
    attribute = measured_in_time(cursor, read)
    return RangeWindow(length, slide, read.origin or 0, attribute, cursor.since(start))


def _tuple_slide(cursor: Cursor, start: Span, length: Duration, read: Options) -> TupleWindow:
    if read.origin is not None:
        raise cursor.error(
            "a window that slides by rows has no ORIGIN: it ends at rows",
            cursor.since(start),
            "Leave ORIGIN out.",
        )
    attribute, numbered = measured_in_both(cursor, read)
    assert read.slide_rows is not None
    return TupleWindow(length, read.slide_rows, read.partition, attribute, numbered, cursor.since(start))


def _unbounded(cursor: Cursor, start: Span) -> RangeWindow:
    if cursor.at_any("SLIDE"):
        raise cursor.error(
            "an UNBOUNDED window has no SLIDE",
            cursor.token.span,
            "[LANDMARK SLIDE e] emits all rows so far at every multiple of e.",
        )
    return RangeWindow(None, None, 0, None, cursor.since(start))


def _rows(
    cursor: Cursor, start: Span, count: int | None, partition: tuple[Expr, ...], first: Options
) -> RowsWindow:
    read = options(cursor, first)
    span = cursor.since(start)
    if read.slide is not None:
        raise cursor.error(
            "a window of ROWS slides by rows, not by time", span, "Write for example [ROWS 100 SLIDE 10]."
        )
    if read.origin is not None:
        raise cursor.error("ORIGIN belongs to windows of time", span)
    numbered = measured_in_rows(cursor, read)
    if numbered is not None and numbered.attribute is None and read.slide_rows is None:
        raise cursor.unsupported(
            "a window of ROWS in the order of arrival needs a SLIDE",
            numbered.span,
            "Write for example [ROWS 100 SLIDE 10 WATTR row_num].",
        )
    if count is None and read.slide_rows is not None:
        raise cursor.error("an UNBOUNDED window has no SLIDE", span)
    if partition and read.partition:
        raise cursor.error("PARTITION BY and PA specify the same thing twice", span)
    if count is None and (partition or read.partition):
        raise cursor.error(
            "an UNBOUNDED window has no partitions", span, "Leave PARTITION BY out: the rows are the same."
        )
    return RowsWindow(count, read.slide_rows, partition or read.partition, span, numbered)


def _row_count(cursor: Cursor) -> int | None:
    return None if cursor.accept("UNBOUNDED") else positive(cursor, "ROWS")


def _delta(cursor: Cursor, start: Span, partition: tuple[Expr, ...]) -> DeltaWindow:
    threshold = cursor.token
    try:
        number = float(threshold.text) if threshold.kind == "number" else None
    except ValueError:
        number = None
    if number is None or number == float("inf"):
        raise cursor.expected("how far a value may be from the first one, such as DELTA 0.5 ON price")
    cursor.advance()
    cursor.expect("ON", purpose=" and what the DELTA is measured on")
    on = expression(cursor)
    read = options(cursor)
    if read != Options(partition=read.partition):
        raise cursor.error(
            "a DELTA window takes PA only: it ends where the value leaves it", cursor.since(start)
        )
    if partition and read.partition:
        raise cursor.error("PARTITION BY and PA specify the same thing twice", cursor.since(start))
    return DeltaWindow(number, on, partition or read.partition, cursor.since(start))


def _named(cursor: Cursor, start: Span) -> NamedWindow:
    name = cursor.name("the name of a registered window")
    cursor.expect_sign("(", " and constants, if only ()")
    arguments: list[Expr] = []
    while not cursor.accept_sign(")"):
        if arguments:
            cursor.expect_sign(",", " or ')'")
        arguments.append(expression(cursor))
    on = expressions(cursor) if cursor.accept("ON") else ()
    return NamedWindow(name, tuple(arguments), on, cursor.since(start))


def _partitioned(cursor: Cursor, start: Span) -> WindowClause:
    partition = expressions(cursor)
    if cursor.accept("DELTA"):
        return _delta(cursor, start, partition)
    if cursor.accept("SESSION"):
        return _session(cursor, start, partition)
    cursor.expect("ROWS", purpose=" and their number, SESSION or DELTA after PARTITION BY")
    return _rows(cursor, start, _row_count(cursor), partition, Options())


def _session(cursor: Cursor, start: Span, partition: tuple[Expr, ...]) -> SessionWindow:
    gap = positive_duration(cursor, "the gap of the session")
    read = options(cursor)
    if read != Options(partition=read.partition, attribute=read.attribute):
        raise cursor.error(
            "a SESSION window takes PA and WATTR only: it ends at a gap between rows", cursor.since(start)
        )
    if partition and read.partition:
        raise cursor.error("PARTITION BY and PA specify the same thing twice", cursor.since(start))
    if isinstance(read.attribute, RowNumber):
        raise cursor.error(
            "the gap of a session is a length of time", read.attribute.span, "Leave WATTR out."
        )
    return SessionWindow(read.attribute, gap, partition or read.partition, cursor.since(start))


def _landmark(cursor: Cursor, start: Span, first: Options) -> LandmarkWindow:
    read = options(cursor, first)
    if read.slide is None:
        raise cursor.expected(
            "SLIDE and a length of time in a LANDMARK window", "Write for example [LANDMARK SLIDE 1 HOUR]."
        )
    if read.partition:
        raise cursor.error(
            "PA belongs to windows of ROWS", cursor.since(start), "GROUP BY gives the same answer."
        )
    return LandmarkWindow(read.slide, read.origin or 0, measured_in_time(cursor, read), cursor.since(start))


# -------------------------------------------------------------------------------------- windows that start at multiples


def table_function(cursor: Cursor) -> tuple[str, StartingWindow | SessionWindow | NamedWindow]:
    """Pass `TUMBLE(TABLE s, DESCRIPTOR(t), size[, offset])`, `HOP(TABLE s, DESCRIPTOR(t), slide, size[, offset])`,
    `CUMULATE(TABLE s, DESCRIPTOR(t), step, size[, offset])` or `SESSION(TABLE s [PARTITION BY k], DESCRIPTOR(t), gap)`.

    Returns the stream's name and the window.
    """
    function = cursor.advance()
    cursor.expect_sign("(")
    cursor.expect("TABLE", purpose=f" and a stream's name in {function.upper}")
    name = cursor.dotted_name("a stream's name")
    partition: tuple[Expr, ...] = ()
    if function.upper == "SESSION" and cursor.accept("PARTITION", "BY"):
        partition = _before_descriptor(cursor)
    cursor.expect_sign(",")
    cursor.expect("DESCRIPTOR", purpose=" and the column of event times")
    cursor.expect_sign("(")
    attribute = column(cursor)
    cursor.expect_sign(")")
    lengths = []
    while cursor.accept_sign(","):
        lengths.append(duration(cursor, "a length of time"))
    cursor.expect_sign(")", " or ','")
    span = cursor.since(function.span)
    if function.upper == "SESSION":
        if len(lengths) != 1:
            raise cursor.error("SESSION takes a stream, its event time and a gap", span)
        return name, _with_gap(cursor, SessionWindow(attribute, lengths[0], partition, span))
    if function.upper == "CUMULATE":
        if len(lengths) not in (2, 3):
            raise cursor.error(
                "CUMULATE takes a stream, its event time, a step, a size and perhaps an offset", span
            )
        constants = tuple(Constant(length, INTERVAL, str(length), span) for length in lengths)
        return name, NamedWindow("cumulate", constants, (), span, attribute)
    return name, _starting(cursor, function.upper, _lattice(cursor, function.upper, attribute, lengths, span))


def _before_descriptor(cursor: Cursor) -> tuple[Expr, ...]:
    items = [expression(cursor)]
    while cursor.at_sign(",") and cursor.ahead().upper != "DESCRIPTOR":
        cursor.advance()
        items.append(expression(cursor))
    return tuple(items)


def _lattice(
    cursor: Cursor, function: str, attribute: Name, lengths: list[Duration], span: Span
) -> StartingWindow:
    if function == "TUMBLE":
        if len(lengths) not in (1, 2):
            raise cursor.error("TUMBLE takes a stream, its event time, a size and perhaps an offset", span)
        return StartingWindow(attribute, lengths[0], lengths[0], (*lengths, 0)[1], span)
    if len(lengths) not in (2, 3):
        raise cursor.error("HOP takes a stream, its event time, a slide, a size and perhaps an offset", span)
    slide, size, origin = (*lengths, 0)[:3]
    return StartingWindow(attribute, size, slide, origin, span)


def _with_gap(cursor: Cursor, window: SessionWindow) -> SessionWindow:
    if window.gap <= 0:
        raise cursor.error("the gap of a session must be longer than 0", window.span)
    return window


def is_window_call(item: Expr) -> bool:
    """True for `window(…)` or `session_window(…)` as an item of GROUP BY."""
    return isinstance(item, FunctionCall) and item.name.upper() in WINDOWS and item.field is None


def grouped_window(cursor: Cursor, call: Expr) -> StartingWindow | SessionWindow:
    """The window of `GROUP BY window(t, size[, slide[, start]])` or `GROUP BY session_window(t, gap)`.

    Raises `UserError` for other arguments.
    """
    assert isinstance(call, FunctionCall)
    attribute, *lengths = call.arguments or (None,)
    if call.name.lower() == "session_window":
        if not isinstance(attribute, Name) or len(lengths) != 1:
            raise cursor.error(
                "session_window takes a column and a gap",
                call.span,
                "Write for example session_window(at, '5 minutes').",
            )
        return _with_gap(cursor, SessionWindow(attribute, _length(cursor, lengths[0]), (), call.span))
    if not isinstance(attribute, Name) or not 1 <= len(lengths) <= 3:
        raise cursor.error(
            "window takes a column, a size and perhaps a slide and a start",
            call.span,
            "Write for example window(at, '10 minutes').",
        )
    size, *rest = (_length(cursor, item) for item in lengths)
    slide, origin = rest[0] if rest else size, rest[1] if len(rest) > 1 else 0
    return _starting(cursor, "window()", StartingWindow(attribute, size, slide, origin, call.span))


def length_of(item: Expr) -> Duration:
    """The length of time that is an argument of `window(…)`; raises `UserError` for anything else."""
    if isinstance(item, Constant) and item.type == INTERVAL and isinstance(item.value, int):
        return item.value
    if isinstance(item, Constant) and item.type == STRING and isinstance(item.value, str):
        return interval_text(item.value)
    raise UserError(
        "window needs constant lengths of time", remedy="Write for example window(at, '10 minutes')."
    )


def _length(cursor: Cursor, item: Expr) -> Duration:
    try:
        return length_of(item)
    except UserError as error:
        raise cursor.error(error.message, item.span, error.remedy) from None


def _starting(cursor: Cursor, what: str, window: StartingWindow) -> StartingWindow:
    if window.range <= 0 or window.slide <= 0:
        raise cursor.error("a window's size and slide must be longer than 0", window.span)
    if abs(window.origin) >= window.slide:
        raise cursor.error(
            f"the start of {what} must be shorter than its slide",
            window.span,
            "Windows start at start + i*slide for every i.",
        )
    if window.slide > window.range:
        raise cursor.error(
            f"the slide of {what} cannot be longer than its size",
            window.span,
            "A bracket can: FROM s [RANGE 1 MINUTE SLIDE 5 MINUTES].",
        )
    return window
