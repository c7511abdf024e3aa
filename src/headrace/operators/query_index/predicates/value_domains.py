"""Domains: the sets of values for which conditions on one attribute are true, as the keys where membership changes; and
AND, OR and NOT of such sets.

A union of ranges is stored as its *flips*: with ascending keys, membership begins as `starts` and changes at each flip.
So a value belongs iff `starts` XOR (number of flips at or below it) is odd. Indexes need this form; in it the
complement is one bit, and `=`, `!=`, IN, BETWEEN and OR need no cases of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import merge
from typing import Final

from headrace.dataclass import dataclass
from headrace.operators.query_index.predicates.order_keys import BEYOND, LEAST, Cuts, Key


@dataclass(frozen=True, slots=True)
class Domain:
    """A set of keys, and the condition's value where the attribute is NULL (None: unknown, as SQL's NULL)."""

    starts: bool
    flips: tuple[Key, ...]
    at_null: bool | None

    @property
    def is_empty(self) -> bool:
        """True when no value and no NULL belongs."""
        return not self.starts and not self.flips and not self.at_null

    def negated(self) -> Domain:
        """NOT."""
        return Domain(not self.starts, self.flips, None if self.at_null is None else not self.at_null)

    def meet(self, other: Domain) -> Domain:
        """AND."""
        at_null: bool | None = None
        if self.at_null is False or other.at_null is False:
            at_null = False
        elif self.at_null and other.at_null:
            at_null = True
        return _swept(self, other, lambda one, two: one and two, at_null)

    def join(self, other: Domain) -> Domain:
        """OR."""
        at_null: bool | None = None
        if self.at_null or other.at_null:
            at_null = True
        elif self.at_null is False and other.at_null is False:
            at_null = False
        return _swept(self, other, lambda one, two: one or two, at_null)


NULLS: Final = Domain(False, (), True)
"""IS NULL."""
EVERY: Final = Domain(True, (), True)
"""Any value, and NULL."""


def compared(symbol: str, cuts: Cuts) -> Domain:
    """The values that satisfy a comparison (`=` `<>` `<` `<=` `>` `>=`) with a constant of these cuts."""
    below, above = cuts
    match symbol:
        case "<":
            return _domain(True, [below])
        case "<=":
            return _domain(True, [above])
        case ">":
            return _domain(False, [above])
        case ">=":
            return _domain(False, [below])
        case "=":
            return _domain(False, [below, above])
        case _:
            return _domain(True, [below, above])


def between(low: Key, high: Key | None) -> Domain:
    """The keys from `low` up to but without `high` (None: all)."""
    return _domain(False, [low] if high is None else [low, high])


def among(constants: Iterable[Cuts]) -> Domain:
    """The values equal to one of the constants."""
    points = sorted({cuts for cuts in constants if cuts[0] != cuts[1]})
    return _domain(False, [cut for point in points for cut in point])


def _domain(starts: bool, flips: Iterable[Key]) -> Domain:
    """The domain without flips that cancel, or that are below or beyond all keys."""
    remaining: list[Key] = []
    for flip in flips:
        if remaining and remaining[-1] == flip:
            remaining.pop()
        elif flip in (LEAST, b"") or (isinstance(flip, int) and flip < LEAST):
            starts = not starts
        elif isinstance(flip, bytes) or flip < BEYOND:
            remaining.append(flip)
    return Domain(starts, tuple(remaining), None)


def _swept(first: Domain, second: Domain, rule: Callable[[bool, bool], bool], at_null: bool | None) -> Domain:
    inside = [first.starts, second.starts]
    starts = inside_now = rule(*inside)
    flips: list[Key] = []
    tagged = merge(((key, 0) for key in first.flips), ((key, 1) for key in second.flips))
    for key, whose in tagged:
        inside[whose] = not inside[whose]
        if rule(*inside) != inside_now:
            inside_now = not inside_now
            if flips and flips[-1] == key:
                flips.pop()
            else:
                flips.append(key)
    return Domain(starts, tuple(flips), at_null)
