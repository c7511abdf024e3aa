"""Conditions of statements on many queries (SHOW, PAUSE, RESUME and DROP QUERIES): the parser of `LIKE 'pattern'`
and `WHERE tag = 'night' AND owner = 'ana'`, and the test of a condition on values.

A statement may apply to all queries of a team, or all of one kind. In a pattern % is any text and _ one character;
names, owners and tags are compared without case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from typing import Literal as Choice

from headrace.catalog.definitions import QUERY_PHASES
from headrace.dataclass import dataclass
from headrace.errors import did_you_mean
from headrace.language.syntax.cursor import Cursor

Property = Choice["name", "owner", "tag", "state"]

_PROPERTIES: Final[dict[str, Property]] = {"NAME": "name", "OWNER": "owner", "TAG": "tag", "STATE": "state"}


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition: a property equals a value, or with `like` matches a pattern, or if `negated` does not."""

    property: Property
    value: str
    like: bool = False
    negated: bool = False

    def holds(self, values: Sequence[str]) -> bool:
        """Whether the condition holds for any of these values of the property, or if negated for none."""
        if self.like:
            fits = re.compile(pattern_of(self.value), re.IGNORECASE | re.DOTALL).fullmatch
            matched = any(fits(value) for value in values)
        else:
            matched = self.value.casefold() in (value.casefold() for value in values)
        return matched != self.negated


Selection = tuple[Condition, ...]
"""Conditions that must all hold."""


def pattern_of(like: str) -> str:
    """A LIKE pattern as a regular expression."""
    return "".join(".*" if mark == "%" else "." if mark == "_" else re.escape(mark) for mark in like)


def selection(cursor: Cursor) -> Selection:
    """`[LIKE 'pattern'] [WHERE condition {AND condition}]`.

    Raises `UserError` for an unknown property, or an unknown state.
    """
    conditions: list[Condition] = []
    if cursor.accept("LIKE"):
        conditions.append(Condition("name", cursor.string("a pattern in quotes after LIKE"), like=True))
    if cursor.accept("WHERE"):
        conditions.append(_condition(cursor))
        while cursor.accept("AND"):
            conditions.append(_condition(cursor))
        if cursor.at_any("OR"):
            raise cursor.unsupported(
                "conditions on queries are joined with AND",
                cursor.token.span,
                "Run the statement once for each.",
            )
    return tuple(conditions)


def _condition(cursor: Cursor) -> Condition:
    token = cursor.token
    about = _PROPERTIES.get(token.upper)
    if about is None:
        remedy = did_you_mean(token.text, _PROPERTIES.values()) if token.kind == "name" else None
        raise cursor.expected("name, owner, tag or state", remedy)
    cursor.advance()
    if cursor.accept_sign("="):
        like, negated = False, False
    elif cursor.accept_sign("<>") or cursor.accept_sign("!="):
        like, negated = False, True
    elif cursor.at_word("LIKE") or cursor.at_word("NOT", "LIKE"):
        negated, like = cursor.accept("NOT"), cursor.accept("LIKE")
    else:
        raise cursor.expected(f"=, <>, LIKE or NOT LIKE after {about}")
    at = cursor.token.span
    value = cursor.string(f"{'a pattern' if like else f'the {about}'} in quotes")
    if about == "state" and not like and value.lower() not in QUERY_PHASES:
        raise cursor.error(f"no query is ever '{value}'", at, did_you_mean(value, QUERY_PHASES))
    return Condition(about, value, like, negated)
