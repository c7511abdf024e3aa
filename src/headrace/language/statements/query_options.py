"""The parser of a query's options (retain, owner, tags, materialize, sharing, maxWindowsPerRow, maxJoinRows, constraints,
spill, timeZone); and checks of owners and tags, also for callers in Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict
from typing import Literal as Choice

from headrace.errors import Span, UserError, did_you_mean
from headrace.language.statements.options import checked_zone, interval_option, option_list, taken
from headrace.language.syntax.cursor import Cursor
from headrace.time import Duration

_EXAMPLE: Final = "(retain '7 DAYS', owner 'ana', tags 'alerts, night')"
_NAMES: Final = (
    "retain",
    "owner",
    "tags",
    "materialize",
    "sharing",
    "maxWindowsPerRow",
    "maxJoinRows",
    "constraints",
    "spill",
    "timeZone",
)
_LONGEST_NUMBER: Final = 18
_SWITCH: Final = {"on": True, "off": False}
_CONSTRAINTS: Final[dict[str, Choice["declared", "find"]]] = {"declared": "declared", "find": "find"}
_MATERIALIZE: Final[dict[str, Choice["none", "partial", "complete"]]] = {
    "none": "none",
    "partial": "partial",
    "complete": "complete",
}


class QuerySettings(TypedDict, total=False):
    """The options of a statement: `retain` None has no limit, `owner` None removes the owner, an empty `tags` all tags.

    `materialize`: what is stored between two INVOKEs. `zone`: the time zone of its times and dates.
    `sharing`: whether its panes are aggregated together with those of equal queries.
    `max_windows_per_row`: how many of its windows may hold one row. `max_join_rows`: how many rows its join stores, None: all.
    `join_constraints`: by which its joins drop rows. `spill`: the time between the rows of pairs up to which these are found whatever constraints hold, None: any.
    """

    retain: Duration | None
    owner: str | None
    tags: tuple[str, ...]
    materialize: Choice["none", "partial", "complete"]
    zone: str
    sharing: bool
    max_windows_per_row: int
    max_join_rows: int | None
    join_constraints: Choice["declared", "find"]
    spill: Duration | None


def query_options(cursor: Cursor) -> QuerySettings:
    """`(retain '7 DAYS', owner 'ana', tags 'alerts, night')`: at least one of them.

    Raises `UserError` for anything else.
    """
    start = cursor.token.span
    places: dict[str, Span] = {}
    options = option_list(cursor, places)
    settings: QuerySettings = {}
    if (text := taken(options, "retain")) is not None:
        settings["retain"] = (
            None if text.upper() == "ALL" else interval_option(cursor, "retain", text, places["retain"])
        )
    if (owner := taken(options, "owner")) is not None:
        settings["owner"] = owner.strip() or None
    if (tags := taken(options, "tags")) is not None:
        settings["tags"] = _tags(cursor, tags, places["tags"])
    if (level := taken(options, "materialize")) is not None:
        if level.lower() not in _MATERIALIZE:
            raise cursor.error(
                f"materialize is 'none', 'partial' or 'complete', not '{level}'",
                places["materialize"],
                "'none' keeps nothing, 'partial' which rows pass, 'complete' the answer itself.",
            )
        settings["materialize"] = _MATERIALIZE[level.lower()]
    if (switch := taken(options, "sharing")) is not None:
        if switch.lower() not in _SWITCH:
            raise cursor.error(
                f"sharing is 'on' or 'off', not '{switch}'",
                places["sharing"],
                "'off' keeps the panes of this query separate from those of similar queries.",
            )
        settings["sharing"] = _SWITCH[switch.lower()]
    if (most := taken(options, "maxwindowsperrow")) is not None:
        settings["max_windows_per_row"] = _count(cursor, "maxWindowsPerRow", most, places)
    if (most := taken(options, "maxjoinrows")) is not None:
        settings["max_join_rows"] = (
            None if most.upper() == "ALL" else _count(cursor, "maxJoinRows", most, places)
        )
    if (constraints := taken(options, "constraints")) is not None:
        if constraints.lower() not in _CONSTRAINTS:
            raise cursor.error(
                f"constraints is 'declared' or 'find', not '{constraints}'",
                places["constraints"],
                "With 'find' joins also drop rows by delays that they have measured, and may leave out late pairs.",
            )
        settings["join_constraints"] = _CONSTRAINTS[constraints.lower()]
    if (length := taken(options, "spill")) is not None:
        settings["spill"] = _spill(cursor, length, places["spill"])
    if (zone := taken(options, "timezone")) is not None:
        settings["zone"] = checked_zone(cursor, zone, places["timezone"])
    for name in options:
        remedy = (
            did_you_mean(name, _NAMES) or f"It has {', '.join(_NAMES[:-1])} and {_NAMES[-1]}: {_EXAMPLE}."
        )
        raise cursor.error(f"a query has no option '{name}'", places[name.lower()], remedy)
    if not settings:
        raise cursor.error("no option is given", cursor.since(start), f"Write {_EXAMPLE}.")
    return settings


def checked_owner(owner: str | None) -> str | None:
    """An owner without blanks around it; None for a blank one. Raises `UserError` for a value that is no text."""
    if owner is not None and not isinstance(owner, str):
        raise UserError(f"the owner is {owner!r}", remedy="Pass a text: owner='ana'.")
    return (owner or "").strip() or None


def checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Tags in their order. They are compared without case, so one that occurs twice is a mistake.

    Raises `UserError` for that, for an empty one, and for a value that is no list of texts.
    """
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
        raise UserError(f"the tags are {tags!r}", remedy="Pass a list of texts: tags=['alerts', 'night'].")
    names = tuple(tag.strip() for tag in tags)
    for index, tag in enumerate(names):
        if not tag or "," in tag:
            fault = f"the tag '{tag}' has a comma in it" if tag else "a tag is empty"
            raise UserError(fault, remedy="Tags are separated by commas: 'alerts, night'.")
        if tag.lower() in (other.lower() for other in names[:index]):
            raise UserError(f"the tag '{tag}' appears twice", remedy="Tags are compared without case.")
    return names


def _spill(cursor: Cursor, text: str, at: Span) -> Duration | None:
    if text.upper() in ("ALL", "OFF"):
        return None if text.upper() == "ALL" else 0
    try:
        length = interval_option(cursor, "spill", text, at)
    except UserError as error:
        remedy = "Write spill '5 MINUTES': pairs with at most so much time between their rows are found, whatever constraints hold; 'ALL' finds all, 'OFF' none."
        raise cursor.error(error.message, at, remedy) from None
    return length


def _count(cursor: Cursor, name: str, text: str, places: Mapping[str, Span]) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= len(text.lstrip("0")) <= _LONGEST_NUMBER:
        raise cursor.error(
            f"{name} is a whole number of at least 1, not '{text}'",
            places[name.lower()],
            f"Write {name} '1000000'; without the option it is the default.",
        )
    return int(text)


def _tags(cursor: Cursor, text: str, at: Span) -> tuple[str, ...]:
    try:
        return checked_tags(text.split(",") if text.strip() else ())
    except UserError as error:
        raise cursor.error(error.message, at, error.remedy) from None
