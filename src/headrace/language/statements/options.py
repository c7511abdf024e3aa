"""The parser of lists of options, `(key 'value', …)`, and of values that several statements have: intervals and time
zones.
"""

from __future__ import annotations

from headrace.errors import Span, UserError
from headrace.language.parser.literals import interval_text
from headrace.language.syntax.cursor import Cursor
from headrace.time import Duration
from headrace.zones import rules_of


def option_list(cursor: Cursor, places: dict[str, Span]) -> dict[str, str]:
    """`(key 'value', key = value, …)`; `places` gets the place of each value by lower-case key."""
    cursor.expect_sign("(", " and options")
    options: dict[str, str] = {}
    while not cursor.accept_sign(")"):
        start = cursor.token.span
        key = _key(cursor)
        if key.lower() in (name.lower() for name in options):
            raise cursor.error(f"the option '{key}' appears twice", start)
        cursor.accept_sign("=")
        places[key.lower()] = cursor.token.span
        options[key] = _value(cursor, key)
        if not cursor.accept_sign(",") and not cursor.at_sign(")"):
            raise cursor.expected("')' or ',' after an option")
    return options


def _key(cursor: Cursor) -> str:
    if cursor.token.kind == "string":
        return cursor.advance().text
    parts = [cursor.name("an option's name")]
    while cursor.accept_sign("."):
        parts.append(cursor.name("the rest of the option's name"))
    return ".".join(parts)


def _value(cursor: Cursor, key: str) -> str:
    if cursor.token.kind in ("string", "number") or cursor.at_any("TRUE", "FALSE"):
        return cursor.advance().text
    raise cursor.expected(f"the value of the option '{key}', in quotes")


def taken(options: dict[str, str], key: str) -> str | None:
    """The value of an option by name without case, removed from the options."""
    written = next((name for name in options if name.lower() == key), None)
    return None if written is None else options.pop(written)


def interval_option(cursor: Cursor, option: str, text: str, at: Span) -> Duration:
    """A length of time given as an option's value.

    Raises `UserError` for anything else.
    """
    try:
        length = interval_text(text)
    except UserError as error:
        raise cursor.error(f"{option}: {error.message}", at, error.remedy) from None
    if length < 0:
        raise cursor.error(f"{option} must not be negative", at)
    return length


def known_zone(zone: str) -> str:
    """The name of an existing time zone, with one name for UTC; raises `UserError` for any other."""
    rules = rules_of(zone)
    if rules is None:
        raise UserError(
            f"there is no time zone '{zone}'", remedy="Zones are named as in 'UTC' or 'Europe/Berlin'."
        )
    return zone if rules else "UTC"


def checked_zone(cursor: Cursor, zone: str, at: Span) -> str:
    """As `known_zone`, of a zone that is written at a place of a script."""
    try:
        return known_zone(zone)
    except UserError as error:
        raise cursor.error(error.message, at, error.remedy) from None
