"""What a format's reader returns: `Chunk`, rows whose event times are not checked yet, with the records that it refused
(`Refused`); and `WholeFile`, raised where the rest of a file cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.batch import EventTimes


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that is not part of the stream."""

    row: int
    text: str
    reason: str


class WholeFile(Exception):
    """The rest of the split cannot be read as rows of the stream.

    `rows` is how many rows that is, where the file records it; else one reject represents all.
    """

    def __init__(self, reason: str, text: str = "", rows: int = 1) -> None:
        super().__init__(reason)
        self.reason, self.text, self.rows = reason, text, max(1, rows)


@dataclass(slots=True)
class Chunk:
    """Rows of a format's reader, before their event times are checked: all columns asked for, numbered in the split.

    `numbers` is how many row numbers the chunk uses up; `raw` gives the text of a row by its number, where the format
    has one. `times` are event times that need no check, of rows whose column of event times was not read.
    """

    batch: pa.RecordBatch
    rows: npt.NDArray[np.int64]
    refused: list[Refused] = field(default_factory=list)
    numbers: int = 0
    raw: Callable[[int], str] | None = None
    times: EventTimes | None = None
