"""Ingest log and query log: durable records, numbered from 0, written by one driver at a time.

Records that are appended together are one file (a chunk), published if absent: of two writers that both believe to be
the only one, the second to append gets `AlreadyPublished`. A record is any JSON value.

Every append has an id, which its chunk holds. So a writer that gets "already published", or no answer, reads the chunk and
compares the id with its own (decision 17). Chunks of older versions have none.

A chunk may have a *snapshot*: what all records before it amount to. Then those can be dropped (decision 122).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from headrace.dataclass import dataclass
from headrace.errors import AlreadyPublished, CorruptStore, StoreError
from headrace.store.files.envelope import seal, unseal
from headrace.store.files.filesystem import MissingFile, Store
from headrace.store.logs.numbered_files import NumberedFiles

INGEST_LOG: Final = "ingest"
QUERY_LOG: Final = "querylog"

_KIND: Final = "log chunk"
_VERSION: Final = 2
"""From 2 on a record of the ingest log may have its rows itself; readers of 1 would look for their file."""
_OLDEST: Final = 1


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records that were appended together: the first one's ordinal, and the append's id (None: written by an older version).

    `snapshot`, where there is one, is what all records before the first amount to.
    """

    number: int
    first: int
    records: tuple[Any, ...]
    append: str | None = None
    snapshot: Any = None

    @property
    def end(self) -> int:
        """The ordinal after the last record."""
        return self.first + len(self.records)

    def without_snapshot(self) -> Chunk:
        """The records alone: a snapshot is as large as what is defined."""
        return self if self.snapshot is None else replace(self, snapshot=None)

    def since(self, ordinal: int) -> Chunk:
        """The part of the chunk that is not below an ordinal."""
        below = max(0, ordinal - self.first)
        if not below:
            return self
        return replace(self, first=self.first + below, records=self.records[below:], snapshot=None)


class RecordLog:
    """One log. `append` continues where the log ended when the object was made, moved by its own appends only.

    So a driver that was replaced still has the old end, and its next append fails.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name
        self._files = NumberedFiles(store, name)
        # Listed once, because a chunk that was lost must not look like the end of the log.
        numbers = self._files.range()
        self._first_number = numbers.start
        self._seen = last = self._chunk(numbers[-1]).without_snapshot() if numbers else None
        self._next, self._end = (0, 0) if last is None else (last.number + 1, last.end)

    @property
    def length(self) -> int:
        """How many records were ever appended, by any writer; read each time."""
        last = self._last_chunk()
        return 0 if last is None else last.end

    @property
    def end(self) -> int:
        """The ordinal that the next append of this object gives its first record, if no other writer appends before."""
        return self._end

    @property
    def start(self) -> int:
        """Ordinal of the first record that is not dropped."""
        return 0 if self._last_chunk() is None else self._first_chunk().first

    def append(
        self,
        records: Sequence[Any],
        append: str | None = None,
        after: Iterable[str] = (),
        snapshot: Any = None,
    ) -> int:
        """Append records, durably; the ordinal of the first. `AlreadyPublished` when another writer got in between.

        The files `after` are durable before. `snapshot` is of all records before these. `append` is the append's id, a new one by
        default; an append that is repeated under its id is there once. The `outcome` of another `StoreError` is whether the records are there. If it is unknown and they are, the next append
        is refused as `AlreadyPublished`.
        """
        if not records:
            return self._end
        chunk = Chunk(self._next, self._end, tuple(records), append or uuid.uuid4().hex)
        body = {
            "number": chunk.number,
            "first": chunk.first,
            "records": list(records),
            "append": chunk.append,
        }
        if snapshot is not None:
            body["snapshot"] = snapshot
        data = seal(_KIND, _VERSION, body)
        try:
            self._files.publish(chunk.number, data, after)
        except AlreadyPublished:
            if not self._is_there(chunk):
                raise
        except StoreError as error:
            if error.outcome == "absent":
                raise
            self._find_out(chunk, error)
        self._seen = chunk
        self._next, self._end = chunk.number + 1, chunk.end
        return chunk.first

    def settle(self) -> None:
        """Make the log durable, also an append whose outcome is unknown: a reader may act on it then."""
        last = self._last_chunk()
        if last is not None:
            self._store.sync([self._files.name(last.number)])

    def _find_out(self, chunk: Chunk, error: StoreError) -> None:
        """Check whether a failed append is there after all; raises the failure, with its outcome, unless it is."""
        error.outcome = "unknown"
        try:
            is_there = self._is_there(chunk)
        except StoreError as blind:
            raise error from blind
        if not is_there:
            error.outcome = "absent"
            raise error

    def _is_there(self, chunk: Chunk) -> bool:
        """Whether a chunk's number is published and by that same append; then it is durable."""
        if not self._files.exists(chunk.number) or self._chunk(chunk.number).append != chunk.append:
            return False
        self._store.sync([self._files.name(chunk.number)])
        return True

    def read(self, from_ordinal: int = 0) -> Iterator[tuple[int, Any]]:
        """(ordinal, record) from an ordinal on, to the end as it is when the end is reached."""
        for chunk in self.chunks(from_ordinal):
            yield from enumerate(chunk.records, chunk.first)

    def chunks(self, from_ordinal: int = 0) -> Iterator[Chunk]:
        """The same by appends; the first one without what is below the ordinal."""
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
            yield chunk.since(from_ordinal)
            expected = chunk.end
            if chunk.number >= last.number and not self._files.exists(chunk.number + 1):
                return
            chunk = self._chunk(chunk.number + 1)

    def oldest_snapshot(self) -> Chunk | None:
        """The first chunk with a snapshot, found by reading chunk after chunk; None where none has one."""
        last = self._last_chunk()
        number = 0 if last is None else self._first_chunk().number
        while last is not None and number <= last.number:
            chunk = self._unless_dropped(number)
            if chunk is None:
                number = self._first_chunk().number
            elif chunk.snapshot is not None:
                return chunk
            else:
                number += 1
        return None

    def drop_before(self, ordinal: int) -> tuple[str, ...]:
        """Delete chunks of which all records are before an ordinal, and files below a gap; the deleted names."""
        last = self._last_chunk()
        if last is None:
            return ()
        if ordinal <= self.start:
            return self._files.drop_below(self._first_number)
        keep = last.number if ordinal >= last.end else self._chunk_of(ordinal, last).number
        return self._files.drop_below(keep)

    def _chunk_of(self, ordinal: int, last: Chunk) -> Chunk:
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

    def _first_chunk(self) -> Chunk:
        while True:
            if not self._files.exists(self._first_number):
                self._first_number = self._files.range().start
            chunk = self._unless_dropped(self._first_number)
            if chunk is not None:
                return chunk

    def _unless_dropped(self, number: int) -> Chunk | None:
        """A chunk; None where another thread or process has dropped it since its number was found."""
        try:
            return self._chunk(number)
        except CorruptStore:
            if self._files.range().start <= number:
                raise
            return None

    def _last_chunk(self) -> Chunk | None:
        chunk = self._seen
        number = self._files.last(chunk.number if chunk else None)
        if number is None:
            return None
        if chunk is None or chunk.number != number:
            chunk = self._seen = self._chunk(number).without_snapshot()
        return chunk

    def _chunk(self, number: int) -> Chunk:
        name = self._files.name(number)
        try:
            data = self._store.read(name)
        except MissingFile as error:
            raise CorruptStore(f"the log {self._name}/ has a gap: '{name}' is missing") from error
        body = unseal(_KIND, _VERSION, data, name, oldest=_OLDEST)
        if body["number"] != number:
            raise CorruptStore(f"the log chunk '{name}' has the number {body['number']}")
        return Chunk(number, body["first"], tuple(body["records"]), body.get("append"), body.get("snapshot"))
