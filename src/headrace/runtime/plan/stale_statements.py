"""Does a statement still mean what it meant when it was judged, if the query log has grown meanwhile?

A statement is judged by the catalog and then logged. What is found in the log before it (the last entry of a driver that was
replaced, or this driver's own one whose outcome was unknown) may be about the same names. Then the statement is not logged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from headrace.catalog.catalog import Catalog
from headrace.errors import UserError

_REMEDY: Final = (
    "Nothing was changed. Look at what is there (SHOW), and repeat the statement if it is still meant."
)


def refuse_if_overtaken(judged: Catalog, now: Catalog, entries: Sequence[Mapping[str, Any]]) -> None:
    """Raises `UserError` when what entries are about is no longer what it was when they were judged."""
    if judged is now:
        return
    for entry in entries:
        for name in _names(entry):
            if _called(judged, name) != _called(now, name):
                raise UserError(f"'{name}' has changed while this statement was on its way", remedy=_REMEDY)


def refuse_if_idle(before: Catalog, after: Catalog, entries: Sequence[Mapping[str, Any]]) -> None:
    """Raises `UserError` when entries, applied to the catalog `before`, would find nothing to change."""
    if after.idle == before.idle:
        return
    entry = entries[after.idle[len(before.idle)] - before.position]
    raise UserError(f"there is no {entry.get('kind', 'query')} '{entry['name']}' any more", remedy=_REMEDY)


def _names(entry: Mapping[str, Any]) -> Iterator[str]:
    """What an entry is about: the thing it makes or changes, and the name it gives."""
    for part in ("stream", "relation", "query", "function", "window"):
        if f"{part}" in entry:
            yield entry[part]["name"]
    yield from (entry[part] for part in ("name", "to") if part in entry)


def _called(catalog: Catalog, name: str) -> tuple[Any, ...]:
    """All that bears a name."""
    key = name.lower()
    return (
        catalog.stream(key),
        catalog.relation(key),
        catalog.query(key),
        catalog.window(key),
        catalog.functions.get(key),
        catalog.sample_rates.get(key),
    )
