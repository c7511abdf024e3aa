"""The blob that a scan task sends a state task, packed to bytes and back: its receipt, its rejected rows, and the deltas
for the task's slots, which are grouped by state here.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.batch import Rejected
from headrace.operators.base.operator import Sections
from headrace.runtime.messages.exchange_columns import WrittenTable, are_plain, written
from headrace.runtime.messages.task_messages import ScanReceipt
from headrace.store.files.container import Container, parts

_LENGTH: Final = struct.Struct("<q")
_WORD: Final = 64


@dataclass(frozen=True, slots=True)
class ScanBlob:
    """The content of one blob. Sections are named `operator/section`."""

    receipt: ScanReceipt
    rejected: Mapping[str, list[Rejected]]
    sections: Mapping[str, pa.Table]

    def pack(self) -> bytes:
        """Bytes for the exchange, never stored, with large tables compressed.

        A blob is copied six times on its way through Python, sockets and the JVM: LZ4 costs less than that.
        """
        return b"".join([*_headed(self, {}), *_container(self.sections, compressed=True)])

    def parts(self) -> list[Any]:
        """The same for a file, as buffers: large tables of numbers as they are, after all others."""
        plain = {name: table for name, table in self.sections.items() if are_plain(table)}
        places, columns = written(plain)
        body = _container(
            {name: table for name, table in self.sections.items() if name not in plain}, compressed=False
        )
        size = sum(len(part) for part in body)
        return [*_headed(self, places, size), *body, bytes(-size % _WORD), *columns]

    @staticmethod
    def unpack(data: pa.Buffer) -> ScanBlob:
        """The blob of such bytes; tables that are not compressed are views of `data`."""
        (length,) = _LENGTH.unpack_from(data)
        start = _LENGTH.size
        receipt, rejected, places, size = pickle.loads(data.slice(start, length))
        body = data.slice(start + length) if size is None else data.slice(start + length, size)
        sections = Container.open(body).tables() if body.size else {}
        if places:
            columns = data.slice(start + length + size + -size % _WORD)
            sections |= {name: place.read(columns) for name, place in places.items()}
        return ScanBlob(receipt, rejected, sections)


def _headed(blob: ScanBlob, places: Mapping[str, WrittenTable], size: int | None = None) -> list[bytes]:
    """A length, and a pickled head of that length: the receipt, the rejected rows, where plain tables are, and the bytes of the
    container before them, None for all that follow.
    """
    head = pickle.dumps((blob.receipt, blob.rejected, places, size), protocol=5)
    head += bytes(-(_LENGTH.size + len(head)) % _WORD)  # tables begin at a whole word: they are read in place
    return [_LENGTH.pack(len(head)), head]


def _container(sections: Mapping[str, pa.Table], *, compressed: bool) -> list[Any]:
    return parts(sections, checksums=False, compressed=compressed) if sections else []


def in_order(blobs: Iterable[ScanBlob]) -> list[ScanBlob]:
    """Blobs by scan task: the exchange loses their order, and results must not depend on it."""
    return sorted(blobs, key=lambda blob: blob.receipt.task)


def deltas_by_state(blobs: Iterable[ScanBlob]) -> dict[str, list[Sections]]:
    """The deltas of every state, one entry a blob that has any."""
    deltas: dict[str, list[Sections]] = {}
    for blob in blobs:
        for state, sections in by_state(blob.sections).items():
            deltas.setdefault(state, []).append(sections)
    return deltas


def by_state(sections: Mapping[str, pa.Table]) -> dict[str, Sections]:
    """Sections named `state/section` by their state; one pass, as there may be thousands of states."""
    states: dict[str, dict[str, pa.Table]] = {}
    for name, table in sections.items():
        state, _, section = name.partition("/")
        states.setdefault(state, {})[section] = table
    return dict(states)
