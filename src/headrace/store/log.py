"""How are the ingest log and the query log kept: durable records, numbered from 0, written by one driver at a time?

Records that are appended together are one file (a chunk), published if absent: of two writers that both believe to be
the only one, the second to append gets `AlreadyPublished`. A record is any JSON value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.errors import CorruptStore, StoreError
from headrace.store.envelope import seal, unseal
from headrace.store.filesystem import MissingFile, Store
from headrace.store.numbered import NumberedFiles

INGEST_LOG: Final = "ingest"
QUERY_LOG: Final = "querylog"

_KIND: Final = "log chunk"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class _Chunk:
    number: int
    first: int
    records: tuple[Any, ...]

    @property
    def end(self) -> int:
        return self.first + len(self.records)


class RecordLog:
    """One log. Where `append` continues is fixed when the object is made, and moved by its own appends only.

    That is what fences: a driver that was replaced still holds the old end, and its next append fails.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name
        self._files = NumberedFiles(store, name)
        # Listed once, because a chunk that was lost must not look like the end of the log.
        found = self._files.range()
        self._first_number = found.start
        self._seen = last = self._chunk(found[-1]) if found else None
        self._next, self._end = (0, 0) if last is None else (last.number + 1, last.end)

    @property
    def length(self) -> int:
        """How many records were ever appended, by whomever; looks each time."""
        last = self._last_chunk()
        return 0 if last is None else last.end

    @property
    def start(self) -> int:
        """Ordinal of the first record that is not dropped."""
        return 0 if self._last_chunk() is None else self._first_chunk().first

    def append(self, records: Sequence[Any]) -> int:
        """Append records, durably; the ordinal of the first. `AlreadyPublished` when another writer got in between."""
        first = self._end
        if not records:
            return first
        body = {"number": self._next, "first": first, "records": list(records)}
        self._files.publish(self._next, seal(_KIND, _VERSION, body))
        self._seen = _Chunk(self._next, first, tuple(records))
        self._next, self._end = self._next + 1, first + len(records)
        return first

    def read(self, from_ordinal: int = 0) -> Iterator[tuple[int, Any]]:
        """(ordinal, record) from an ordinal on, to the end as it is when the end is reached."""
        if from_ordinal < 0:
            raise StoreError(f"records of the log {self._name}/ are numbered from 0, not from {from_ordinal}")
        last = self._last_chunk()
        if last is None or from_ordinal >= last.end:
            return
        chunk = last if from_ordinal >= last.first else self._chunk_of(from_ordinal, last)
        expected = chunk.first
        while True:
            if chunk.first != expected:
                raise CorruptStore(
                    f"the log chunk '{self._files.name(chunk.number)}' begins at record {chunk.first}, "
                    f"expected {expected}"
                )
            for ordinal, record in enumerate(chunk.records, chunk.first):
                if ordinal >= from_ordinal:
                    yield ordinal, record
            expected = chunk.end
            if chunk.number >= last.number and not self._files.exists(chunk.number + 1):
                return
            chunk = self._chunk(chunk.number + 1)

    def drop_before(self, ordinal: int) -> tuple[str, ...]:
        """Delete chunks of which all records lie before an ordinal; the names that went."""
        last = self._last_chunk()
        if last is None or ordinal <= self.start:
            return ()
        keep = last.number if ordinal >= last.end else self._chunk_of(ordinal, last).number
        return self._files.drop_below(keep)

    def _chunk_of(self, ordinal: int, last: _Chunk) -> _Chunk:
        """The chunk that holds a record, by binary search."""
        oldest = self._first_chunk()
        low, high = oldest.number, last.number
        if ordinal < oldest.first:
            raise StoreError(
                f"record {ordinal} of the log {self._name}/ was dropped or lost; the first there is {oldest.first}"
            )
        while low < high:
            middle = (low + high + 1) // 2
            if self._chunk(middle).first <= ordinal:
                low = middle
            else:
                high = middle - 1
        return self._chunk(low)

    def _first_chunk(self) -> _Chunk:
        if not self._files.exists(self._first_number):
            self._first_number = self._files.range().start
        return self._chunk(self._first_number)

    def _last_chunk(self) -> _Chunk | None:
        known = self._seen
        number = self._files.last(known.number if known else None)
        if number is None:
            return None
        if known is None or known.number != number:
            known = self._seen = self._chunk(number)
        return known

    def _chunk(self, number: int) -> _Chunk:
        name = self._files.name(number)
        try:
            data = self._store.read(name)
        except MissingFile as error:
            raise CorruptStore(f"the log {self._name}/ has a gap: '{name}' is missing") from error
        body = unseal(_KIND, _VERSION, data, name)
        if body["number"] != number:
            raise CorruptStore(f"the log chunk '{name}' says that it is number {body['number']}")
        return _Chunk(number, body["first"], tuple(body["records"]))
