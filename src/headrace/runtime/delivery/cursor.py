"""Durable cursors of sinks, actions and clients: a position in the results as the name of a file, and the rows that are due
from there.

A position counts entries of the results list, so it means the same in every later manifest; it does not depend on a query's
text, and survives ALTER. Entries below it that retention has removed are counted by `missed_since` of `result_log`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import pyarrow as pa

from headrace.algebra.query import Query
from headrace.dataclass import dataclass
from headrace.errors import outcome_unless_known
from headrace.operators.base.operator import Operator
from headrace.runtime.home.file_names import file_name
from headrace.runtime.home.home import Home
from headrace.runtime.results import result_log
from headrace.store.files.filesystem import Store
from headrace.store.logs.manifest import Manifest

FOLDER: Final = "sinks"
"""Of a home: a folder for each receiver, with its position as the name of a file."""
_CLIENT: Final = "client-"
_LONGEST: Final = 255
"""Bytes of a file's name."""


@dataclass(slots=True)
class Cursor:
    """How many entries of the results list were delivered, as the name of a file in the home."""

    store: Store
    name: str

    def read(self) -> int:
        """0 for a new receiver."""
        return max(self._positions(), default=0)

    def write(self, delivered: int) -> None:
        """Store the position, durably; older positions are deleted after the newer one is there. Repeating it is harmless.

        The `outcome` of a `StoreError` is whether it is stored. If that is unknown, `read` finds out, and a repetition makes
        it durable.
        """
        with outcome_unless_known("absent"):
            positions = self._positions()
            newest = max(positions, default=-1)
        if newest >= delivered:
            with outcome_unless_known("unknown"):
                self.store.sync([self._file(newest)])  # its writer may not have lived to do so
        else:
            self.store.put_if_absent(self._file(delivered), b"")
        with outcome_unless_known("present"):
            for position in positions:
                if position < max(newest, delivered):
                    self.store.delete(self._file(position))

    def remove(self) -> None:
        """Delete it, for a receiver that is no more."""
        for position in self._positions():
            self.store.delete(self._file(position))

    def _positions(self) -> list[int]:
        return [int(file.name.rpartition("/")[2]) for file in self.store.list(f"{self._folder}/")]

    def _file(self, position: int) -> str:
        return f"{self._folder}/{position:012d}"

    @property
    def _folder(self) -> str:
        return f"{FOLDER}/{file_name(self.name)}"


def client_cursor(store: Store, query: str, client: str) -> Cursor:
    """The cursor of a named client of a query."""
    return Cursor(store, f"{_CLIENT}{query}-{client}")


def bytes_too_long(receiver: str) -> int:
    """By how much the folder of a receiver would have too long a name; 0 or less if it has not."""
    return len(file_name(receiver).encode(errors="surrogatepass")) - _LONGEST


def carry_over(store: Store, old: str, new: str, queries: Collection[str]) -> None:
    """Give the clients of a query their positions under its new name, before it has it; `queries` are the names of all.

    A client that acknowledges rows in between gets these again. One that has a position under the new name keeps it, and one whose name
    is too long with the query's new one cannot have any.
    """
    positions: dict[str, int] = {}
    with outcome_unless_known("absent"):
        files = store.list(f"{FOLDER}/{_CLIENT}")
    for file in files:
        receiver, _, count = file.name.removeprefix(f"{FOLDER}/").rpartition("/")
        positions[receiver] = max(int(count), positions.get(receiver, 0))
    # The client x-y of a query a is the client y of a query a-x.
    others = [_of_clients(query) for query in queries if query not in (old, new)]
    for receiver, position in positions.items():
        target = _of_clients(new) + receiver.removeprefix(_of_clients(old))
        is_others = any(folder.startswith(other) for folder in (receiver, target) for other in others)
        is_free = target not in positions and len(target.encode(errors="surrogatepass")) <= _LONGEST
        if receiver.startswith(_of_clients(old)) and not is_others and is_free:
            with outcome_unless_known("absent"):
                store.put_if_absent(f"{FOLDER}/{target}/{position:012d}", b"")


def _of_clients(query: str) -> str:
    """What the folders of a query's clients begin with."""
    return file_name(f"{_CLIENT}{query}-")


@dataclass(frozen=True, slots=True)
class Due:
    """One epoch's rows of a query, None at the end of what is committed; `position` is its receiver's position after them."""

    epoch: int
    position: int
    rows: pa.Table | None


def due(home: Home, manifest: Manifest, operator: Operator, query: Query, start: int) -> Iterator[Due]:
    """The epochs that are committed from position `start` on, then the end."""
    for part in result_log.epochs_of(home, manifest, operator.id, start):
        table = result_log.ordered(part.table, operator.sort, query.schema.names)
        if table.num_rows:
            yield Due(part.epoch, part.position, result_log.visible(table, query, changes=True))
    yield Due(manifest.epoch, home.list_of(manifest, "results").length, None)
