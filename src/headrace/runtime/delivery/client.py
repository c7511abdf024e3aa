"""Clients that fetch the results they have not acknowledged, after a minute or after days (PSoup, section 1).

The pipeline neither knows of clients nor waits for them. A client reads committed files and stores its position as a file of
its own in the home, so it may be in another process than the hub, and run when no hub does. Until it acknowledges a
delivery it is given the same rows again, also after a crash: at least once, in the order of epochs, and exactly once for a
client that stores the last `position` it has processed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from headrace.algebra.query import Query
from headrace.catalog.catalog import Catalog
from headrace.dataclass import dataclass
from headrace.errors import UserError, outcome_unless_known
from headrace.operators.base.operator import Operator
from headrace.runtime.delivery.cursor import Cursor, bytes_too_long, client_cursor, due
from headrace.runtime.delivery.on_demand_changelog import require_changelog
from headrace.runtime.home.home import Home
from headrace.runtime.invoke.home_reader import Reader
from headrace.runtime.results.result_log import missed_since


class _Looking(Protocol):
    """The part of a hub or of a reader that a client needs."""

    @property
    def home(self) -> Home: ...

    @property
    def catalog(self) -> Catalog: ...

    def operator_and_query(self, name: str) -> tuple[Operator, Query]: ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """Rows of one epoch, and the client's position after them.

    `missed` counts the entries of the results list that retention had removed before this fetch: those of its query, and
    those of any query where the list itself begins later now.
    """

    epoch: int
    rows: pa.Table
    position: int
    missed: int = 0


@dataclass(frozen=True, slots=True)
class Client:
    """A named client of one query; see `connect`."""

    query: str
    name: str
    _at: _Looking
    _cursor: Cursor

    def fetch(self, *, after: Delivery | None = None) -> Delivery | None:
        """The next epoch's rows that are not acknowledged, or that follow `after`; None when there are none yet."""
        return next(self.pending(after=after), None)

    def pending(self, *, after: Delivery | None = None) -> Iterator[Delivery]:
        """All deliveries that are committed and not acknowledged, epoch by epoch."""
        acknowledged = self._cursor.read()
        start = acknowledged if after is None else max(acknowledged, after.position)
        home = self._at.home
        operator, query = self._at.operator_and_query(self.query)
        manifest = home.latest()
        missed = missed_since(home, manifest, operator.id, start)
        for part in due(home, manifest, operator, query, start):
            if part.rows is None:
                return
            yield Delivery(part.epoch, part.rows, part.position, missed)
            missed = 0

    def acknowledge(self, delivery: Delivery) -> None:
        """Never get this delivery, or an earlier one, again. Durable on return; repeating it is harmless.

        The `outcome` of a `StoreError` is whether it is acknowledged; in any case it may be repeated.
        """
        self.acknowledge_to(delivery.position)

    def acknowledge_to(self, position: int) -> None:
        """The same for all deliveries up to a position.

        Raises `UserError` for one beyond what is committed: results that come later would be left out.
        """
        if not 0 <= position <= self._end():
            raise UserError(
                f"the position {position} is beyond what is committed",
                remedy="Acknowledge the position of a delivery that was received.",
            )
        self._cursor.write(position)

    @property
    def position(self) -> int:
        """The position up to which it has acknowledged."""
        return self._cursor.read()

    def skip(self) -> None:
        """Acknowledge all that is committed, without reading it."""
        self._cursor.write(self._end())

    def _end(self) -> int:
        """The position after all that is committed."""
        with outcome_unless_known("absent"):
            return self._at.home.list_of(self._at.home.latest(), "results").length


def connect(at: _Looking | str | Path, query: str, name: str) -> Client:
    """The client `name` of a query, of a hub or of a home that any process may write.

    A name that is new begins with the oldest rows that are retained. Two clients that run at once need two names.
    Raises `UserError` for an unknown home or query, or a name that is empty or too long.
    """
    looking: _Looking = Reader.at(Path(at)) if isinstance(at, str | Path) else at
    registered = looking.catalog.require_query(query).definition.name
    require_changelog(registered, looking.operator_and_query(registered)[0])
    if not name:
        raise UserError(
            "a client needs a name", remedy="The home needs it to know how far that client has read."
        )
    cursor = client_cursor(looking.home.store, registered, name)
    if (excess := bytes_too_long(cursor.name)) > 0:
        raise UserError(
            f"the name of the client is too long for a file's: '{name[:40]}…'",
            remedy=f"Take {excess} bytes less; a '/' or a '%' counts as three.",
        )
    return Client(registered, name, looking, cursor)
