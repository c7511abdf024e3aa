"""What may be said of a query beside its SELECT: how long its results are kept, whose it is, and what it is tagged with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict
from typing import Literal as Choice

from headrace.errors import Span, UserError, did_you_mean
from headrace.language.statements.definitions import checked_zone, interval_option, option_list, taken
from headrace.language.syntax.cursor import Cursor
from headrace.time import Duration

_EXAMPLE: Final = "(retain '7 DAYS', owner 'ana', tags 'alerts, night')"
_NAMES: Final = ("retain", "owner", "tags", "materialize", "sharing", "maxWindowsPerRow", "timeZone")
_LONGEST_NUMBER: Final = 18
_SWITCH: Final = {"on": True, "off": False}
_MATERIALIZE: Final[dict[str, Choice["none", "partial", "complete"]]] = {
    "none": "none",
    "partial": "partial",
    "complete": "complete",
}


class QuerySettings(TypedDict, total=False):
    """The options that are given: `retain` None keeps all, `owner` None is nobody's, no `tags` is none.

    `materialize`: how much of an answer is kept between two INVOKEs. `zone`: by whose clocks it reads times and dates.
    `sharing`: whether it keeps and folds its panes together with queries alike. `max_windows_per_row`: of its windows.
    """

    retain: Duration | None
    owner: str | None
    tags: tuple[str, ...]
    materialize: Choice["none", "partial", "complete"]
    zone: str
    sharing: bool
    max_windows_per_row: int


def query_options(cursor: Cursor) -> QuerySettings:
    """`(retain '7 DAYS', owner 'ana', tags 'alerts, night')`: at least one of them.

    Raises `UserError` for anything else.
    """
    start = cursor.token.span
    places: dict[str, Span] = {}
    given = option_list(cursor, places)
    found: QuerySettings = {}
    if (text := taken(given, "retain")) is not None:
        found["retain"] = (
            None if text.upper() == "ALL" else interval_option(cursor, "retain", text, places["retain"])
        )
    if (owner := taken(given, "owner")) is not None:
        found["owner"] = owner.strip() or None
    if (tags := taken(given, "tags")) is not None:
        found["tags"] = _tags(cursor, tags, places["tags"])
    if (kept := taken(given, "materialize")) is not None:
        if kept.lower() not in _MATERIALIZE:
            raise cursor.error(
                f"materialize is 'none', 'partial' or 'complete', not '{kept}'",
                places["materialize"],
                "'none' keeps nothing, 'partial' which rows pass, 'complete' the answer itself.",
            )
        found["materialize"] = _MATERIALIZE[kept.lower()]
    if (switch := taken(given, "sharing")) is not None:
        if switch.lower() not in _SWITCH:
            raise cursor.error(
                f"sharing is 'on' or 'off', not '{switch}'",
                places["sharing"],
                "'off' keeps the panes of this query separate from those of similar queries.",
            )
        found["sharing"] = _SWITCH[switch.lower()]
    if (most := taken(given, "maxwindowsperrow")) is not None:
        if not most.isascii() or not most.isdigit() or not 1 <= len(most.lstrip("0")) <= _LONGEST_NUMBER:
            raise cursor.error(
                f"maxWindowsPerRow is a whole number of at least 1, not '{most}'", places["maxwindowsperrow"]
            )
        found["max_windows_per_row"] = int(most)
    if (zone := taken(given, "timezone")) is not None:
        found["zone"] = checked_zone(cursor, zone, places["timezone"])
    for name in given:
        remedy = (
            did_you_mean(name, _NAMES) or f"It has {', '.join(_NAMES[:-1])} and {_NAMES[-1]}: {_EXAMPLE}."
        )
        raise cursor.error(f"a query has no option '{name}'", places[name.lower()], remedy)
    if not found:
        raise cursor.error("no option is given", cursor.since(start), f"Write {_EXAMPLE}.")
    return found


def checked_owner(owner: str | None) -> str | None:
    """An owner as it is kept; a blank one is nobody. Raises `UserError` for what is no text."""
    if owner is not None and not isinstance(owner, str):
        raise UserError(f"the owner is {owner!r}", remedy="Pass a text: owner='ana'.")
    return (owner or "").strip() or None


def checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Tags as they are kept, in their order. They are names: compared without case, so one that comes twice is a mistake.

    Raises `UserError` for an empty one, too, and for what is no list of texts.
    """
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
        raise UserError(f"the tags are {tags!r}", remedy="Pass a list of texts: tags=['alerts', 'night'].")
    found = tuple(tag.strip() for tag in tags)
    for place, tag in enumerate(found):
        if not tag or "," in tag:
            fault = f"the tag '{tag}' has a comma in it" if tag else "a tag is empty"
            raise UserError(fault, remedy="Tags are separated by commas: 'alerts, night'.")
        if tag.lower() in (other.lower() for other in found[:place]):
            raise UserError(f"the tag '{tag}' appears twice", remedy="Tags are compared without case.")
    return found


def _tags(cursor: Cursor, text: str, at: Span) -> tuple[str, ...]:
    try:
        return checked_tags(text.split(",") if text.strip() else ())
    except UserError as error:
        raise cursor.error(error.message, at, error.remedy) from None
