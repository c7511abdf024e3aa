"""Parser and binder of the text of a punctuation pattern, such as `auction IN (17, 18) AND at < TIMESTAMP '…'`:
tests of columns, and the event time below which no later row matches them.

Each column of the stream's PATTERNS OF may be compared with constants, event time only from above: a promise about time
holds from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from typing import Final

from headrace.algebra.expressions.punctuation_patterns import Between, OneOf, Pattern, Plain, Test
from headrace.errors import Span, UserError, did_you_mean
from headrace.language.parser.expressions import parse_expression
from headrace.language.syntax import ast
from headrace.language.syntax.ast import Chain, Constant, ConstantList, Expr, Infix, Is, Name
from headrace.schema import BOOLEAN, DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ, Schema, Type
from headrace.time import FOREVER, Instant

_REMEDY: Final = (
    "Write tests of columns joined by AND: k = 'a', k IN (…), k BETWEEN … AND …, k < …, k IS NULL."
)
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def bind_pattern(
    text: str, schema: Schema, columns: tuple[str, ...], time: str | None, zone: str = "UTC"
) -> tuple[Pattern, Instant]:
    """The pattern, and the instant below which no row that matches follows (`FOREVER` where none follows at all). `zone` is
    that of times without one.

    Raises `UserError` where the text is no pattern over the `columns` and the event time.
    """
    pattern = parse_expression(text, zone)
    parts = pattern.operands if isinstance(pattern, Chain) and pattern.operator == "and" else (pattern,)
    reader = _Reader(text, schema, columns, time)
    tests: dict[str, Test] = {}
    bound = FOREVER
    for part in parts:
        name, test = reader.test(part)
        if name == time:
            bound = min(bound, reader.bound(test, part.span))
        elif name in tests:
            raise reader.error(f"the column '{name}' is tested twice", part.span, "Write its tests as one.")
        else:
            tests[name] = test
    return Pattern(tuple(sorted(tests.items()))), bound


class _Reader:
    """The names that one text may use, and the place of its errors."""

    def __init__(self, text: str, schema: Schema, columns: tuple[str, ...], time: str | None) -> None:
        self._text, self._schema, self._time = text, schema, time
        self._columns = columns if time is None else (*columns, time)

    def error(self, message: str, span: Span, remedy: str | None = _REMEDY) -> UserError:
        return UserError(message, span=span, text=self._text, remedy=remedy)

    def test(self, part: Expr) -> tuple[str, Test]:
        match part:
            case Infix(operator=operator, left=Name() as name, right=Constant() as value) if (
                operator in _TURNED
            ):
                return self._compared(name, operator, value)
            case Infix(operator=operator, left=Constant() as value, right=Name() as name) if (
                operator in _TURNED
            ):
                return self._compared(name, _TURNED[operator], value)
            case ast.OneOf(operand=Name() as name, items=items, negated=False):
                return self._column(name), OneOf(tuple(self._plain(name, item) for item in _constants(items)))
            case ast.Between(operand=Name() as name, low=low, high=high, negated=False):
                return self._column(name), Between(self._end(name, low), self._end(name, high))
            case Is(operand=Name() as name, what="null", negated=False):
                return self._column(name), OneOf((None,))
        raise self.error("this is no test of a pattern", part.span)

    def bound(self, test: Test, span: Span) -> Instant:
        """The least instant above all that a test of the event time holds."""
        if isinstance(test, Between) and test.low is None and isinstance(test.high, int):
            return test.high if test.below else test.high + 1
        raise self.error(
            "a promise about event time reaches from the beginning",
            span,
            f"Write {self._time} < TIMESTAMP '…'.",
        )

    def _compared(self, name: Name, operator: str, constant: Constant) -> tuple[str, Test]:
        column = self._column(name)
        if operator == "=":
            return column, OneOf((self._plain(name, constant),))
        value = self._end(name, constant)
        if operator in ("<", "<="):
            return column, Between(high=value, below=operator == "<")
        return column, Between(low=value, above=operator == ">")

    def _column(self, name: Name) -> str:
        column = self._schema.find(name.parts[-1]) if len(name.parts) == 1 else None
        if column is None or column.name not in self._columns:
            written = ".".join(name.parts)
            raise self.error(
                f"punctuation of this stream does not apply to '{written}'",
                name.span,
                did_you_mean(written, self._columns) or f"It applies to {', '.join(self._columns)}.",
            )
        return column.name

    def _end(self, name: Name, item: Expr) -> Plain:
        value = self._plain(name, item)
        if value is None:
            raise self.error("NULL is no end of a range", item.span)
        return value

    def _plain(self, name: Name, item: Expr) -> Plain:
        if not isinstance(item, Constant):
            raise self.error("a pattern compares columns with constants", item.span)
        kind = self._schema.field(self._column(name)).type
        value = item.value
        if value is None:
            return None
        if fits(kind, item.type, value):
            return value.isoformat() if isinstance(value, date) else value  # type: ignore[return-value]
        raise self.error(f"'{name.parts[0]}' is {kind}, not {item.type}", item.span)


def _constants(items: Iterable[Expr]) -> Iterator[Expr]:
    """The items, those of a list of constants one by one."""
    for item in items:
        if isinstance(item, ConstantList):
            yield from (Constant(one.value, one.type, "", item.span) for one in item.constants.literals())
        else:
            yield item


def fits(kind: Type, constant: Type, value: object) -> bool:
    """True where a constant is one of a column's values, whatever its width."""
    if kind == STRING:
        return isinstance(value, str)
    if kind == BOOLEAN:
        return isinstance(value, bool)
    if kind == DATE:
        return isinstance(value, date)
    if kind in (TIMESTAMP, TIMESTAMP_NTZ):
        return constant in (TIMESTAMP, TIMESTAMP_NTZ)
    return isinstance(value, int) and not isinstance(value, bool) and constant.name.endswith("INT")
