"""Pages of a query's committed results. A cursor is a position in the results and a number of rows after it: `12.300`."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.query_handle import instant_of
from headrace.runtime.results import result_log

_CURSOR: Final = re.compile(r"\d+\.\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Page:
    """Rows, and the cursor of the next page: there always is one, for more may come."""

    rows: pa.Table
    next: str


def page_of_results(hub: Hub, query: str, since: str | None, after: str | None, limit: int) -> Page:
    """At most `limit` committed rows after a cursor, of emission instants at or after `since` (ISO 8601); that may be a cursor, too.

    Raises `UserError` for a cursor or a time that is none.
    """
    if since is not None and after is None and _CURSOR.fullmatch(since):
        since, after = None, since
    start = None if since is None else instant_of(time_of(since))
    position, skipped = (0, 0) if after is None else _position(after)
    operator, bound = hub.operator_and_query(query)
    require_committed(hub, position)
    manifest = hub.home.latest()
    tables: list[pa.Table] = []
    missing = limit
    for part in result_log.epochs_of(hub.home, manifest, operator.id, position):
        rows = result_log.ordered(
            result_log.at_or_after(part.table, start), operator.sort, bound.schema.names
        ).slice(skipped)
        tables.append(result_log.visible(rows.slice(0, missing), bound, changes=True))
        if rows.num_rows > missing:
            return Page(pa.concat_tables(tables), f"{position}.{skipped + missing}")
        missing -= rows.num_rows
        position, skipped = part.position, 0
        if not missing:
            return Page(pa.concat_tables(tables), f"{position}.0")
    end = hub.home.list_of(manifest, "results").length
    rows = pa.concat_tables(tables) if tables else hub.query(query).history_schema.empty_table()
    return Page(rows, f"{max(position, end)}.0")


def require_committed(hub: Hub, cursor: int) -> None:
    """Raises `UserError` for a position beyond the end of the results: those up to it would be left out."""
    if not 0 <= cursor <= hub.home.list_of(hub.home.latest(), "results").length:
        raise UserError(
            f"the cursor {cursor} is beyond what is committed", remedy="Send the id of a received event."
        )


def time_of(text: str) -> datetime:
    """A time in ISO 8601.

    Raises `UserError` for text that is none.
    """
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f"'{text}' is no time", remedy="Write a time such as 2024-01-31T12:00:00Z.") from None


def _position(text: str) -> tuple[int, int]:
    position, _, skipped = text.partition(".")
    if not position.isdecimal() or not skipped.isdecimal():
        raise UserError(f"the cursor '{text}' is none", remedy="Send the 'next' of the page before.")
    return int(position), int(skipped)
