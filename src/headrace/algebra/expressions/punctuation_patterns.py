"""Patterns of punctuation: tests of columns, about whose rows a stream makes a promise; their text form, and the
merging of promises.

Each column has a wildcard, a constant, a list or a range (Tucker; Li 2008, section 2.1). A promise is a pattern and an instant:
no later row that matches has an event time below it; without a condition on time, no row that matches follows at all. A
pattern is stored as its text, which is equal for patterns of the same tests: promises are a mapping of texts to instants.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from headrace.dataclass import dataclass
from headrace.time import BEGINNING, Instant

Plain: TypeAlias = str | int | bool | None
"""A value of a column that can name something; a DATE as its text."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """A constant or a list; None among the values is NULL."""

    values: tuple[Plain, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """A range; None is no end. NULL is in no range."""

    low: Plain = None
    high: Plain = None
    above: bool = False
    """Without its lower end."""
    below: bool = False
    """Without its upper end."""

    def holds(self, value: Plain) -> bool:
        """True for a value inside."""
        if value is None:
            return False
        high_enough = self.low is None or value > self.low or (value == self.low and not self.above)  # type: ignore[operator]
        return high_enough and (
            self.high is None or value < self.high or (value == self.high and not self.below)  # type: ignore[operator]
        )


Test: TypeAlias = OneOf | Between


@dataclass(frozen=True, slots=True)
class Pattern:
    """Tests of some columns, by name and in the order of names; every other column is a wildcard."""

    tests: tuple[tuple[str, Test], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are no wildcards."""
        return tuple(name for name, _ in self.tests)

    def text(self) -> str:
        """The pattern as its name."""
        tests: dict[str, Any] = {}
        for name, test in self.tests:
            if isinstance(test, OneOf):
                tests[name] = sorted(dict.fromkeys(test.values), key=lambda value: (value is not None, value))
            else:
                tests[name] = {"from": test.low, "to": test.high, "above": test.above, "below": test.below}
        return json.dumps(tests, separators=(",", ":"), sort_keys=True, ensure_ascii=False)

    def covers(self, other: Pattern) -> bool:
        """True when each row that matches the other pattern matches this one; may be false where that is hard to decide."""
        theirs = dict(other.tests)
        return all(name in theirs and _covers(test, theirs[name]) for name, test in self.tests)


@lru_cache(maxsize=65_536)
def pattern_named(text: str) -> Pattern:
    """The inverse of `Pattern.text`."""
    tests: dict[str, Any] = json.loads(text)
    return Pattern(
        tuple(
            (
                name,
                OneOf(tuple(test))
                if isinstance(test, list)
                else Between(test["from"], test["to"], test["above"], test["below"]),
            )
            for name, test in tests.items()
        )
    )


def rolled_up(promises: Mapping[str, Instant]) -> dict[str, Instant]:
    """The same promises with fewer patterns: constants of one column become a list, and covered patterns are dropped."""
    lists: dict[tuple[str, Instant], set[Plain]] = {}
    others: list[tuple[Pattern, Instant]] = []
    for text, at in promises.items():
        pattern = pattern_named(text)
        only = pattern.tests[0] if len(pattern.tests) == 1 else None
        if only is not None and isinstance(only[1], OneOf):
            lists.setdefault((only[0], at), set()).update(only[1].values)
        else:
            others.append((pattern, at))
    others = [
        (pattern, at)
        for index, (pattern, at) in enumerate(others)
        if not any(
            then >= at and other.covers(pattern) and (then > at or not pattern.covers(other) or rank < index)
            for rank, (other, then) in enumerate(others)
            if rank != index
        )
    ]
    merged = {pattern.text(): at for pattern, at in others}
    for (name, at), values in sorted(_uncovered(lists, others).items(), key=lambda item: item[0]):
        merged[Pattern(((name, OneOf(tuple(values))),)).text()] = at
    return dict(sorted(merged.items()))


def _uncovered(
    lists: Mapping[tuple[str, Instant], set[Plain]], others: list[tuple[Pattern, Instant]]
) -> dict[tuple[str, Instant], set[Plain]]:
    """Values that no wider pattern of one column and no later list holds."""
    ranges = [
        (pattern.columns[0], test, at)
        for pattern, at in others
        if len(pattern.tests) == 1 and isinstance(test := pattern.tests[0][1], Between)
    ]
    latest: dict[tuple[str, Plain], Instant] = {}
    for (name, at), values in lists.items():
        for value in values:
            latest[name, value] = max(at, latest.get((name, value), BEGINNING))
    remaining: dict[tuple[str, Instant], set[Plain]] = {}
    for (name, value), at in latest.items():
        if not any(name == column and then >= at and test.holds(value) for column, test, then in ranges):
            remaining.setdefault((name, at), set()).add(value)
    return remaining


def _covers(wide: Test, narrow: Test) -> bool:
    if isinstance(narrow, OneOf):
        if isinstance(wide, OneOf):
            return set(narrow.values) <= set(wide.values)
        return all(wide.holds(value) for value in narrow.values)
    if isinstance(wide, OneOf):
        return False
    low = wide.low is None or (
        narrow.low is not None
        and (wide.low < narrow.low or (wide.low == narrow.low and (not wide.above or narrow.above)))  # type: ignore[operator]
    )
    return low and (
        wide.high is None
        or (
            narrow.high is not None
            and (wide.high > narrow.high or (wide.high == narrow.high and (not wide.below or narrow.below)))  # type: ignore[operator]
        )
    )
