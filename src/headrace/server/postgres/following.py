"""The cursor behind `FOLLOW query [CLIENT 'name']` in DECLARE and COPY: the rows of a query that are committed after
its position, and their acknowledgement for a named client. Statements are parsed, and new rows waited for, in
`session`.

A cursor reads committed results from its position on, and holds no more than some epochs of them. With a client's name it begins
after what that client has acknowledged; rows that were fetched are acknowledged by the next FETCH, by CLOSE or by
COMMIT, and never by ROLLBACK or by the end of the connection: at least once, as for every other client.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field
from itertools import islice
from typing import Final

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.runtime.delivery.client import Client
from headrace.runtime.delivery.cursor import due
from headrace.runtime.delivery.on_demand_changelog import require_changelog
from headrace.runtime.hub.hub import Hub

_BATCH: Final = 16
"""Epochs that are in memory together."""


@dataclass(slots=True)
class FollowingCursor:
    """One cursor. Used by one thread at a time."""

    hub: Hub
    query: str
    schema: pa.Schema
    position: int
    """Up to which the results are read."""
    client: Client | None = None
    _pending: deque[tuple[pa.Table, int]] = field(default_factory=deque)
    """Rows that were read and not fetched, and the position after them."""
    _fetched: int = 0
    """The position up to which all rows were fetched."""

    @staticmethod
    def of(hub: Hub, query: str, client: str | None) -> FollowingCursor:
        """A cursor on what a client has not acknowledged; without a client on what later epochs emit.

        Raises `UserError` for a query that is not there or cannot be followed.
        """
        name = hub.catalog.require_query(query).definition.name
        require_changelog(name, hub.operator_and_query(name)[0])
        handle = hub.query(name)
        named = None if client is None else handle.client(client)
        start = hub.home.list_of(hub.home.latest(), "results").length if named is None else named.position
        return FollowingCursor(hub, name, handle.history_schema, start, named)

    def take(self, most: int) -> pa.Table:
        """The next rows, at most so many; none if none is committed."""
        parts: list[pa.Table] = []
        missing = most
        while missing and (self._pending or self._read()):
            rows, after = self._pending.popleft()
            parts.append(rows.slice(0, missing))
            if rows.num_rows > missing:
                self._pending.appendleft((rows.slice(missing), after))
            else:
                self._fetched = after
            missing -= parts[-1].num_rows
        return pa.concat_tables(parts) if parts else self.schema.empty_table()

    def acknowledge(self) -> None:
        """Never give this client again what was fetched."""
        if self.client is not None and self._fetched > self.client.position:
            self.client.acknowledge_to(self._fetched)

    def _read(self) -> bool:
        """Read the next epochs; whether they have rows."""
        operator, bound = self.hub.operator_and_query(self.query)
        home = self.hub.home
        while not self._pending:
            before = self.position
            for part in islice(due(home, home.latest(), operator, bound, before), _BATCH):
                self.position = max(part.position, self.position)
                if part.rows is not None and part.rows.num_rows:
                    self._pending.append((part.rows, part.position))
            if self.position == before:
                return False
        return True
