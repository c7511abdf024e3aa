"""Conditions that all readers of a shared join have in common: what a query requires of single rows of each side, what several
queries require at least, its text in the name of a join, and the filters of the join's sides.

Of a column of integers it is the range of all values that any of them selects, rounded outwards, so that later queries with similar
constants can read the join too; of all other conditions, those that every one of them has. Only conditions that cannot fail count.
See decision 66.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import reduce
from typing import Final, TypeAlias

import numpy as np

from headrace.algebra.expressions.expression import (
    Call,
    Column,
    Expression,
    Literal,
    columns_of,
    conjunction,
)
from headrace.algebra.expressions.expression_text import show
from headrace.dataclass import dataclass
from headrace.operators.query_index.predicates.attribute_factors import Factor, factor
from headrace.operators.query_index.predicates.order_keys import Key
from headrace.operators.query_index.predicates.value_domains import Domain
from headrace.operators.rows.row_pipeline import RowFilter
from headrace.operators.scalar.evaluation.failing import can_fail
from headrace.schema import BOOLEAN, Field, Schema, to_arrow

Range: TypeAlias = tuple[int | None, int | None]
"""The least and the greatest value; None without a bound."""
MOST: Final = 6
"""Conditions in the name of a join, which is part of names of files."""
_DIGITS: Final = 3
"""Binary digits of bounds: a range grows by an eighth to a quarter of each bound at most."""
_RANGE, _WRITTEN = "w", "x"


@dataclass(frozen=True, slots=True)
class Conditions:
    """Ranges by (side, number of the column), and digests of other conditions on one side."""

    ranges: Mapping[tuple[int, int], Range] = field(default_factory=dict)
    written: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.ranges or self.written)

    def with_both(self, other: Conditions) -> Conditions:
        """What holds for the rows that either selects."""
        ranges = {
            position: _hull(range_, other.ranges[position])
            for position, range_ in self.ranges.items()
            if position in other.ranges
        }
        bounded = {position: range_ for position, range_ in ranges.items() if range_ != (None, None)}
        return Conditions(bounded, self.written & other.written)

    def covers(self, other: Conditions) -> bool:
        """Whether all rows that the other selects are among those of this."""
        return self.written <= other.written and all(
            position in other.ranges and _hull(range_, other.ranges[position]) == range_
            for position, range_ in self.ranges.items()
        )

    @property
    def words(self) -> list[str]:
        """Words of a name, which have no underscore."""
        ranges = [
            f"{_RANGE}{side}c{column}"
            + ("" if low is None else f"g{low}")
            + ("" if high is None else f"l{high}")
            for (side, column), (low, high) in sorted(self.ranges.items())
        ]
        return [*ranges, *(f"{_WRITTEN}{digest}" for digest in sorted(self.written))][:MOST]


NONE: Final = Conditions()


def is_word(word: str) -> bool:
    """Whether a word of a name is a condition."""
    return word.startswith((_RANGE, _WRITTEN))


def conditions_in(words: Sequence[str]) -> Conditions:
    """Those that words of a name are."""
    ranges = dict(_read(word[len(_RANGE) :]) for word in words if word.startswith(_RANGE))
    return Conditions(ranges, frozenset(word[len(_WRITTEN) :] for word in words if word.startswith(_WRITTEN)))


def _read(word: str) -> tuple[tuple[int, int], Range]:
    rest, _, high = word.partition("l")
    rest, _, low = rest.partition("g")
    side, _, column = rest.partition("c")
    return (int(side), int(column)), (int(low) if low else None, int(high) if high else None)


def common(conditions: Sequence[Conditions]) -> Conditions:
    """What all of them require, with ranges rounded outwards."""
    exact = reduce(Conditions.with_both, conditions)
    ranges = {
        position: (_rounded(low, -1), _rounded(high, 1)) for position, (low, high) in exact.ranges.items()
    }
    return Conditions(ranges, exact.written)


def _hull(one: Range, other: Range) -> Range:
    low = None if one[0] is None or other[0] is None else min(one[0], other[0])
    high = None if one[1] is None or other[1] is None else max(one[1], other[1])
    return low, high


def _rounded(bound: int | None, away: int) -> int | None:
    """A bound with few binary digits, away from the range."""
    if bound is None:
        return None
    step = 1 << max(abs(bound).bit_length() - _DIGITS, 0)
    return bound // step * step if away < 0 else -(-bound // step) * step


def conditions_of(sides: Sequence[Schema], factors: Sequence[Expression]) -> Conditions:
    """What factors over the columns of some sides require of single rows."""
    domains = dict[tuple[int, int], Domain]()
    written = set[str]()
    for number, schema in enumerate(sides):
        for own in _of_one_side(schema, factors):
            one = factor(own)
            column = None if one is None else _bounded_column(one)
            if one is None or column is None:
                written.add(_digest(own))
                continue
            position = number, schema.names.index(column)
            domains[position] = domains[position].meet(one.domain) if position in domains else one.domain
    ranges = {position: _range(domain) for position, domain in domains.items()}
    return Conditions(
        {position: range_ for position, range_ in ranges.items() if range_ != (None, None)},
        frozenset(written),
    )


def _of_one_side(schema: Schema, factors: Sequence[Expression]) -> Iterator[Expression]:
    """The factors on columns of one side that cannot fail."""
    names = frozenset(schema.names)
    return (own for own in factors if columns_of(own) and columns_of(own) <= names and not can_fail(own))


def _bounded_column(one: Factor) -> str | None:
    """The column of integers of which a condition selects a range at most."""
    attribute = one.attribute
    if not isinstance(attribute, Column) or not attribute.type.is_integer or one.domain.at_null:
        return None
    return None if _range(one.domain) == (None, None) else attribute.name


def _range(domain: Domain) -> Range:
    """From the first value of a set of integers to the last."""
    if not domain.flips:
        return None, None
    low = None if domain.starts else _integer(domain.flips[0])
    is_open = domain.starts == (len(domain.flips) % 2 == 0)
    return low, None if is_open else _integer(domain.flips[-1]) - 1


def _integer(key: Key) -> int:
    assert isinstance(key, int)
    return key


def _digest(condition: Expression) -> str:
    return hashlib.blake2b(show(condition).encode(), digest_size=6).hexdigest()


def filters_of(
    sides: Sequence[Schema], conditions: Conditions, factors: Sequence[Expression]
) -> list[tuple[RowFilter, ...]]:
    """By side the filter of its rows; `factors` are those of any reader, all of which have the written ones."""
    filters = list[tuple[RowFilter, ...]]()
    for number, schema in enumerate(sides):
        tests = written_in(conditions, schema, factors)
        for (side, column), (low, high) in sorted(conditions.ranges.items()):
            if side == number:
                tests += _within(schema.fields[column], low, high)
        filters.append((RowFilter(conjunction(tests)),) if tests else ())
    return filters


def written_in(conditions: Conditions, schema: Schema, factors: Sequence[Expression]) -> list[Expression]:
    """The factors on the columns of one side that are among the written conditions."""
    return [own for own in _of_one_side(schema, factors) if _digest(own) in conditions.written]


def _within(column: Field, low: int | None, high: int | None) -> Iterator[Expression]:
    """Comparisons of a column with bounds; none with one beyond the values of its type."""
    limits = np.iinfo(to_arrow(column.type).to_pandas_dtype())
    for sign, bound in ((">=", low), ("<=", high)):
        if bound is not None and limits.min <= bound <= limits.max:
            attribute = Column(column.name, column.type)
            yield Call(sign, (attribute, Literal(bound, column.type)), BOOLEAN)
