"""Refusal of statements that the query log has overtaken: a name of theirs was redefined after they were checked, or they
would change nothing any more.

A statement is checked by the catalog and then logged. Earlier entries in the log (the last one of a replaced driver, or one of
this driver whose outcome was unknown) may be about the same names. Then the statement is not logged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from headrace.catalog.catalog import Catalog
from headrace.errors import UserError

_REMEDY: Final = (
    "Nothing was changed. List the definitions (SHOW), and repeat the statement if it still applies."
)


def refuse_if_overtaken(judged: Catalog, now: Catalog, entries: Sequence[Mapping[str, Any]]) -> None:
    """Raises `UserError` when a name of the entries was redefined after they were checked."""
    if judged is now:
        return
    for entry in entries:
        for name in _names(entry):
            if _called(judged, name) != _called(now, name):
                raise UserError(f"'{name}' has changed while this statement was executed", remedy=_REMEDY)


def refuse_if_idle(before: Catalog, after: Catalog, entries: Sequence[Mapping[str, Any]]) -> None:
    """Raises `UserError` when entries, applied to the catalog `before`, would change nothing."""
    if after.ignored_entries == before.ignored_entries:
        return
    entry = entries[after.ignored_entries[len(before.ignored_entries)] - before.position]
    raise UserError(f"there is no {entry.get('kind', 'query')} '{entry['name']}' any more", remedy=_REMEDY)


def adds_query(catalog: Catalog, entry: Mapping[str, Any]) -> bool:
    """Whether an entry registers a query of a name that is free: nothing that is defined changes by it."""
    return entry["do"] == "put_query" and catalog.kind_of(entry["query"]["name"]) is None


def _names(entry: Mapping[str, Any]) -> Iterator[str]:
    """The names that an entry makes or changes."""
    for part in ("stream", "relation", "query", "function", "window"):
        if f"{part}" in entry:
            yield entry[part]["name"]
    yield from (entry[part] for part in ("name", "to") if part in entry)


def _called(catalog: Catalog, name: str) -> tuple[Any, ...]:
    """All definitions of a name."""
    key = name.lower()
    return (
        catalog.stream(key),
        catalog.relation(key),
        catalog.query(key),
        catalog.window(key),
        catalog.functions.get(key),
        catalog.sample_rates.get(key),
    )
