"""Ingest records, which the driver writes to the ingest log, and the batches that a task reads from them.

An `IngestRecord` is one line of the ingest log: a piece of a source that is read in one go, the same on every read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.operators.base.batch import EventTimes
from headrace.time import Instant

PUNCTUATION: Final = "punctuation"
"""The format of a record without rows: a program's promise that no row below the instant `start` follows (that matches `promise`)."""

ALL: Final = "{}"
"""The pattern of all rows."""

WHOLE: Final = -1
"""The end of a range that reaches the end of the file."""

GROWING: Final = -1
"""The modification time of a file that may grow: its first `size` bytes do not change."""

REJECTS: Final = pa.schema([("row", pa.int64()), ("text", pa.string()), ("reason", pa.string())])
"""Refused records: number in the split, raw text, and the reason."""


class SourceChanged(UserError):
    """A file has changed since it was listed; reading it again would give other rows."""


@dataclass(frozen=True, slots=True)
class IngestRecord:
    """A piece of a source. `start` and `end` count bytes (csv, json), row groups (parquet), record batches (arrow) or
    rows (rate). `arrival` is the instant of listing; `rows_hint` and `batch` are -1 when unknown. `batch` is the
    micro-batch of a Spark streaming DataFrame: a record whose batch was recorded before is a repetition. `promise` is the
    pattern of a punctuation (`headrace.algebra.expressions.punctuation_patterns`), by default that of all rows. `producer`, `sequence` and `digest` name
    a pushed batch and its content (`headrace.connectors.records.producers`). `rows` are those of a small push, an Arrow stream in
    base64: it has no file, and `uri` only names it.
    """

    stream: str
    uri: str
    format: str
    start: int
    end: int
    size: int
    mtime_ns: int
    arrival: Instant
    rows_hint: int = -1
    batch: int = -1
    promise: str = ALL
    producer: str = ""
    sequence: int = -1
    digest: str = ""
    rows: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the ingest log; a pattern, a producer or rows only where there are any."""
        values = {name: getattr(self, name) for name in IngestRecord.__slots__}
        if self.promise == ALL:
            del values["promise"]
        if not self.producer:
            for name in ("producer", "sequence", "digest"):
                del values[name]
        if not self.rows:
            del values["rows"]
        return values

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> IngestRecord:
        """The inverse of `to_json`."""
        return IngestRecord(**values)


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """Rows of a split, in order.

    `table` has the columns asked for, with the schema's own Arrow types. `times` are the event times, `rows` each row's
    number in the split: increasing, and with gaps where records were rejected, since they are numbered too.
    """

    table: pa.RecordBatch
    times: EventTimes
    rows: npt.NDArray[np.int64]
    rejects: pa.Table

    @property
    def at(self) -> npt.NDArray[np.int64]:
        """The event time of each row, in microseconds."""
        return self.times.instants


def reject_table(rows: Iterable[int], texts: list[str], reasons: list[str]) -> pa.Table:
    """A table of `REJECTS` from three columns of equal length."""
    return pa.table(
        [pa.array(list(rows), pa.int64()), pa.array(texts, pa.string()), pa.array(reasons, pa.string())],
        schema=REJECTS,
    )


NO_REJECTS: Final = REJECTS.empty_table()
