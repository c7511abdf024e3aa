"""The parser of a window's options in brackets (SLIDE, ORIGIN, WATTR, RATTR, SATTR, PA), in any order, with or
without commas; options that contradict each other are refused.
"""

from __future__ import annotations

from headrace.dataclass import dataclass
from headrace.errors import Span
from headrace.language.parser.durations import duration, instant
from headrace.language.parser.expressions import expression
from headrace.language.parser.primaries import column
from headrace.language.syntax.ast import Expr, Measure, Name, RowNumber
from headrace.language.syntax.cursor import Cursor
from headrace.time import Duration, Instant


@dataclass(slots=True)
class Options:
    """The options of a window; `attribute` is WATTR, `of_range` RATTR, `of_slide` SATTR."""

    slide: Duration | None = None
    slide_rows: int | None = None
    origin: Instant | None = None
    attribute: Measure | None = None
    of_range: Measure | None = None
    of_slide: Measure | None = None
    partition: tuple[Expr, ...] = ()

    @property
    def slides(self) -> bool:
        """True when there is a SLIDE."""
        return self.slide is not None or self.slide_rows is not None


_WORDS = frozenset({"ROWS", "RANGE", "SLIDE", "ORIGIN", "WATTR", "WA", "RATTR", "SATTR", "PA"})


def measured_first(cursor: Cursor) -> Options:
    """Pass the measure of a window where it is first, as in `[WA at, RANGE 3 MINUTES]`."""
    if not (cursor.accept("WATTR") or cursor.accept("WA")):
        return Options()
    window = Options(attribute=_measure(cursor))
    cursor.accept_sign(",")
    return window


def options(cursor: Cursor, first: Options | None = None) -> Options:
    """Pass all options, added to `first`; raises `UserError` for one that occurs twice or contradicts another one."""
    window = first or Options()
    while True:
        comma = cursor.accept_sign(",")
        start = cursor.token.span
        word = cursor.token.upper
        if cursor.accept("SLIDE"):
            _once(cursor, not window.slides, word, start)
            _slide(cursor, window)
        elif cursor.accept("ORIGIN"):
            _once(cursor, window.origin is None, word, start)
            window.origin = instant(cursor, "the origin of the window")
        elif cursor.accept("WATTR") or cursor.accept("WA"):
            _once(cursor, window.attribute is None, "WATTR", start)
            window.attribute = _measure(cursor)
        elif cursor.accept("RATTR"):
            _once(cursor, window.of_range is None, word, start)
            window.of_range = _measure(cursor)
        elif cursor.accept("SATTR"):
            _once(cursor, window.of_slide is None, word, start)
            window.of_slide = _measure(cursor)
        elif cursor.accept("PA"):
            _once(cursor, not window.partition, word, start)
            window.partition = expressions(cursor)
        elif comma:
            raise cursor.expected("SLIDE, ORIGIN, WATTR, RATTR, SATTR or PA after the comma")
        else:
            return _consistent(cursor, window)


def _once(cursor: Cursor, first: bool, word: str, at: Span) -> None:
    if not first:
        raise cursor.error(f"{word} appears twice in this window", at)


def _consistent(cursor: Cursor, window: Options) -> Options:
    second = window.of_range or window.of_slide
    if window.attribute is not None and second is not None:
        raise cursor.error(
            "WATTR specifies what both RANGE and SLIDE are measured on",
            second.span,
            "Use WATTR alone, or RATTR for the range and SATTR for the slide.",
        )
    if window.of_slide is not None and not window.slides:
        raise cursor.error("SATTR needs a SLIDE in this window", window.of_slide.span)
    return window


def _measure(cursor: Cursor) -> Measure:
    """Pass a column, `row_num` (also `row-num`) or `rank(column)`."""
    start = cursor.token.span
    if cursor.at_word("RANK") and cursor.ahead().text == "(":
        cursor.advance()
        cursor.advance()
        attribute = column(cursor)
        cursor.expect_sign(")", " after the column of rank")
        return RowNumber(attribute, cursor.since(start))
    dashed = cursor.at_word("ROW") and cursor.ahead().text == "-" and cursor.ahead(2).upper == "NUM"
    if dashed or cursor.at_word("ROW_NUM"):
        for _ in range(3 if dashed else 1):
            cursor.advance()
        return RowNumber(None, cursor.since(start))
    return column(cursor)


def _slide(cursor: Cursor, window: Options) -> None:
    if cursor.token.kind == "number" and cursor.ahead().upper in ("ROWS", "ROW"):
        window.slide_rows = positive(cursor, "SLIDE")
        cursor.advance()
    elif cursor.token.kind == "number" and (
        cursor.ahead().text in ("]", ",") or cursor.ahead().upper in _WORDS
    ):
        window.slide_rows = positive(cursor, "SLIDE")
    else:
        window.slide = positive_duration(cursor, "the slide of the window")


def expressions(cursor: Cursor) -> tuple[Expr, ...]:
    """Pass one expression or several; a comma before the next option ends them."""
    items = [expression(cursor)]
    while cursor.at_sign(",") and cursor.ahead().upper not in _WORDS:
        cursor.advance()
        items.append(expression(cursor))
    cursor.accept_sign(",")
    return tuple(items)


def positive(cursor: Cursor, what: str) -> int:
    """Pass a number of rows, at least 1."""
    count = cursor.whole_number(f"a number of rows after {what}")
    if count == 0:
        raise cursor.error("a window needs at least one row", cursor.before.span)
    return count


def positive_duration(cursor: Cursor, what: str) -> Duration:
    """Pass a positive length of time."""
    start = cursor.token.span
    length = duration(cursor, what)
    if length <= 0:
        raise cursor.error(f"{what} must be longer than 0", cursor.since(start))
    return length


def measured_in_time(cursor: Cursor, window: Options) -> Name | None:
    """The column that measures a window whose RANGE and SLIDE are lengths of time; None for event time.

    Raises `UserError` for a measure in rows.
    """
    range_, slide = window.attribute or window.of_range, window.attribute or window.of_slide
    if isinstance(range_, RowNumber):
        raise cursor.error(
            f"a RANGE of time cannot be measured on {_spelled(range_)}",
            range_.span,
            "Write RANGE 1000 ROWS, or measure it on the event time.",
        )
    if isinstance(slide, RowNumber):
        raise cursor.error(
            f"a SLIDE of time cannot be measured on {_spelled(slide)}",
            slide.span,
            "Write for example SLIDE 5 ROWS.",
        )
    if range_ is not None and slide is not None and _lower(range_) != _lower(slide):
        raise cursor.error(
            "RANGE and SLIDE are both lengths of time: they are measured on one column", slide.span
        )
    return range_ or slide


def measured_in_both(cursor: Cursor, window: Options) -> tuple[Name | None, RowNumber | None]:
    """The measures of a RANGE of time and of a SLIDE in rows; raises `UserError` where they are exchanged."""
    if window.attribute is not None:
        raise cursor.error(
            "the range of this window is a length of time and its slide a number of rows: WATTR cannot be both",
            window.attribute.span,
            "Write for example [RANGE 5 MINUTES RATTR at, SLIDE 1 ROW SATTR row_num].",
        )
    if isinstance(window.of_range, RowNumber):
        raise cursor.error(
            f"a RANGE of time cannot be measured on {_spelled(window.of_range)}",
            window.of_range.span,
            "Write RANGE 1000 ROWS, or measure it on the event time.",
        )
    return window.of_range, _number(cursor, "a SLIDE in rows", window.of_slide)


def measured_in_rows(cursor: Cursor, window: Options) -> RowNumber | None:
    """The numbering of the rows of a window of ROWS; raises `UserError` for a column, or for two numberings."""
    if window.attribute is not None:
        return _number(cursor, "a window of ROWS", window.attribute)
    of_range, of_slide = (
        _number(cursor, "a RANGE in rows", window.of_range),
        _number(cursor, "a SLIDE in rows", window.of_slide),
    )
    if of_range is not None and of_slide is not None and _numbering(of_range) != _numbering(of_slide):
        raise cursor.error("RANGE and SLIDE number the rows differently", of_slide.span)
    return of_range or of_slide


def _number(cursor: Cursor, what: str, measure: Measure | None) -> RowNumber | None:
    if isinstance(measure, Name):
        name = ".".join(measure.parts)
        raise cursor.error(
            f"{what} is counted by row_num or rank({name}), not by '{name}'",
            measure.span,
            "row_num counts rows as they arrive, rank in the order of event time.",
        )
    return measure


def _numbering(number: RowNumber) -> tuple[str, ...] | None:
    return None if number.attribute is None else _lower(number.attribute)


def _lower(name: Name) -> tuple[str, ...]:
    return (name.parts[-1].lower(),)


def _spelled(number: RowNumber) -> str:
    return "row_num" if number.attribute is None else f"rank({'.'.join(number.attribute.parts)})"
