"""What may follow RANGE, ROWS or LANDMARK in a bracket, in any order, with or without commas; and what contradicts what."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import Span
from headrace.language.parser.durations import duration, instant
from headrace.language.parser.expressions import expression
from headrace.language.parser.primaries import column
from headrace.language.syntax.ast import Expr, Measure, Name, RowNumber
from headrace.language.syntax.cursor import Cursor
from headrace.time import Duration, Instant


@dataclass(slots=True)
class Options:
    """The options found; `attribute` is WATTR, `of_range` RATTR, `of_slide` SATTR."""

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
    """Pass what a window is measured on where it comes first, as in `[WA at, RANGE 3 MINUTES]`."""
    if not (cursor.accept("WATTR") or cursor.accept("WA")):
        return Options()
    found = Options(attribute=_measure(cursor))
    cursor.accept_sign(",")
    return found


def options(cursor: Cursor, given: Options | None = None) -> Options:
    """Pass all of them, beside what was given before; raises `UserError` for one that comes twice, or that another one
    contradicts.
    """
    found = given or Options()
    while True:
        comma = cursor.accept_sign(",")
        start = cursor.token.span
        word = cursor.token.upper
        if cursor.accept("SLIDE"):
            _once(cursor, not found.slides, word, start)
            _slide(cursor, found)
        elif cursor.accept("ORIGIN"):
            _once(cursor, found.origin is None, word, start)
            found.origin = instant(cursor, "the origin of the window")
        elif cursor.accept("WATTR") or cursor.accept("WA"):
            _once(cursor, found.attribute is None, "WATTR", start)
            found.attribute = _measure(cursor)
        elif cursor.accept("RATTR"):
            _once(cursor, found.of_range is None, word, start)
            found.of_range = _measure(cursor)
        elif cursor.accept("SATTR"):
            _once(cursor, found.of_slide is None, word, start)
            found.of_slide = _measure(cursor)
        elif cursor.accept("PA"):
            _once(cursor, not found.partition, word, start)
            found.partition = expressions(cursor)
        elif comma:
            raise cursor.wanted("SLIDE, ORIGIN, WATTR, RATTR, SATTR or PA after the comma")
        else:
            return _consistent(cursor, found)


def _once(cursor: Cursor, first: bool, word: str, at: Span) -> None:
    if not first:
        raise cursor.error(f"{word} appears twice in this window", at)


def _consistent(cursor: Cursor, found: Options) -> Options:
    second = found.of_range or found.of_slide
    if found.attribute is not None and second is not None:
        raise cursor.error(
            "WATTR specifies what both RANGE and SLIDE are measured on",
            second.span,
            "Use WATTR alone, or RATTR for the range and SATTR for the slide.",
        )
    if found.of_slide is not None and not found.slides:
        raise cursor.error("SATTR needs a SLIDE in this window", found.of_slide.span)
    return found


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


def _slide(cursor: Cursor, found: Options) -> None:
    if cursor.token.kind == "number" and cursor.ahead().upper in ("ROWS", "ROW"):
        found.slide_rows = positive(cursor, "SLIDE")
        cursor.advance()
    elif cursor.token.kind == "number" and (
        cursor.ahead().text in ("]", ",") or cursor.ahead().upper in _WORDS
    ):
        found.slide_rows = positive(cursor, "SLIDE")
    else:
        found.slide = positive_duration(cursor, "the slide of the window")


def expressions(cursor: Cursor) -> tuple[Expr, ...]:
    """Pass one expression or several; a comma before the next option ends them."""
    found = [expression(cursor)]
    while cursor.at_sign(",") and cursor.ahead().upper not in _WORDS:
        cursor.advance()
        found.append(expression(cursor))
    cursor.accept_sign(",")
    return tuple(found)


def positive(cursor: Cursor, what: str) -> int:
    """Pass a number of rows, at least 1."""
    count = cursor.whole_number(f"a number of rows after {what}")
    if count == 0:
        raise cursor.error("a window needs at least one row", cursor.before.span)
    return count


def positive_duration(cursor: Cursor, what: str) -> Duration:
    """Pass a length of time above nothing."""
    start = cursor.token.span
    length = duration(cursor, what)
    if length <= 0:
        raise cursor.error(f"{what} must be longer than nothing", cursor.since(start))
    return length


def measured_in_time(cursor: Cursor, found: Options) -> Name | None:
    """The one column that a window whose RANGE and SLIDE are lengths of time is measured on, if it says so.

    Raises `UserError` where it says rows.
    """
    range_, slide = found.attribute or found.of_range, found.attribute or found.of_slide
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


def measured_in_both(cursor: Cursor, found: Options) -> tuple[Name | None, RowNumber | None]:
    """What a RANGE of time and what a SLIDE in rows is measured on; raises `UserError` where they are exchanged."""
    if found.attribute is not None:
        raise cursor.error(
            "the range of this window is a length of time and its slide a number of rows: WATTR cannot be both",
            found.attribute.span,
            "Write for example [RANGE 5 MINUTES RATTR at, SLIDE 1 ROW SATTR row_num].",
        )
    if isinstance(found.of_range, RowNumber):
        raise cursor.error(
            f"a RANGE of time cannot be measured on {_spelled(found.of_range)}",
            found.of_range.span,
            "Write RANGE 1000 ROWS, or measure it on the event time.",
        )
    return found.of_range, _number(cursor, "a SLIDE in rows", found.of_slide)


def measured_in_rows(cursor: Cursor, found: Options) -> RowNumber | None:
    """What the rows of a window of ROWS are numbered by; raises `UserError` for a column, or for two numberings."""
    if found.attribute is not None:
        return _number(cursor, "a window of ROWS", found.attribute)
    of_range, of_slide = (
        _number(cursor, "a RANGE in rows", found.of_range),
        _number(cursor, "a SLIDE in rows", found.of_slide),
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
