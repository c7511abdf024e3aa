"""The parser of what a question over the archive accepts: `WITHIN 2 PERCENT`, `IN 500 MILLISECONDS`, or both."""

from __future__ import annotations

from fractions import Fraction

from headrace.dataclass import dataclass
from headrace.language.parser.durations import duration
from headrace.language.syntax.cursor import Cursor
from headrace.time import Duration


@dataclass(frozen=True, slots=True)
class Accepted:
    """The error as a fraction, 0 for none; and how long the answer may take, None for as long as it needs."""

    within: Fraction
    duration: Duration | None


def accepted_error(cursor: Cursor) -> Accepted | None:
    """Pass `[WITHIN p PERCENT] [IN d]` after a SELECT; None without both."""
    within = _percent(cursor) if cursor.accept("WITHIN") else None
    start = cursor.token.span
    length = None
    if cursor.accept("IN"):
        length = duration(cursor, "how long the answer may take after IN")
        if length <= 0:
            raise cursor.error(
                "an answer takes longer than nothing",
                cursor.since(start),
                "Write for example IN 500 MILLISECONDS.",
            )
    if within is None and length is None:
        return None
    return Accepted(within or Fraction(0), length)


def _percent(cursor: Cursor) -> Fraction:
    number = cursor.token
    if number.kind != "number":
        raise cursor.expected("a number of percent after WITHIN", "Write for example WITHIN 2 PERCENT.")
    cursor.advance()
    cursor.expect("PERCENT", purpose=" after WITHIN and a number")
    try:
        within = Fraction(number.text) / 100
    except ValueError:
        raise cursor.error(f"'{number.text}' is not a number of percent", number.span) from None
    if within > 1:
        raise cursor.error(
            "an error is at most 100 percent", number.span, "Write for example WITHIN 2 PERCENT."
        )
    return within
