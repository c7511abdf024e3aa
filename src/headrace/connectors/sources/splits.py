"""Splits of a large file, so that several tasks can read it: a function of the file alone, never of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from headrace.connectors.formats.arrow_reader import MAGIC
from headrace.connectors.formats.text_lines import is_divisible
from headrace.connectors.records.ingest_record import WHOLE
from headrace.connectors.records.options import text_options

PIECE: Final = 64 << 20
"""About how many bytes one range holds."""

Range = tuple[int, int, int]
"""Start, end, and the number of rows where it is known, else -1."""


def ranges(path: str, using: str, size: int, options: Mapping[str, str], start: int = 0) -> list[Range]:
    """The ranges of one file, in order; of text from `start`, the beginning of a line.

    A file that does not have its format is one range, for the reader to refuse.
    """
    if using in ("csv", "json"):
        return [(start + low, start + high, rows) for low, high, rows in _bytes(path, size - start, options)]
    if size <= PIECE:
        return [(0, WHOLE, -1)]
    try:
        return _row_groups(path) if using == "parquet" else _batches(path, size)
    except (pa.ArrowException, OSError):
        return [(0, WHOLE, -1)]


def _bytes(path: str, size: int, options: Mapping[str, str]) -> Iterator[Range]:
    if size <= PIECE + PIECE // 2:
        yield 0, size, -1
        return
    text = text_options(options)
    if text.multi_line or not is_divisible(path, text.encoding):
        yield 0, size, -1
        return
    pieces = round(size / PIECE)
    for piece in range(pieces):
        yield size * piece // pieces, size * (piece + 1) // pieces, -1


def _row_groups(path: str) -> list[Range]:
    """Ranges of neighbouring row groups, each of about a piece."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - only where it is used

    footer = pq.read_metadata(path)
    groups: list[Range] = []
    start = weight = rows = 0
    for group in range(footer.num_row_groups):
        facts = footer.row_group(group)
        weight += sum(facts.column(index).total_compressed_size for index in range(facts.num_columns))
        rows += facts.num_rows
        if weight >= PIECE or group == footer.num_row_groups - 1:
            groups.append((start, group + 1, rows))
            start, weight, rows = group + 1, 0, 0
    return groups or [(0, WHOLE, 0)]


def _batches(path: str, size: int) -> list[Range]:
    with pa.memory_map(path) as source:
        if source.read(len(MAGIC)) != MAGIC:
            return [(0, WHOLE, -1)]
        count = pa.ipc.open_file(source).num_record_batches
    pieces = max(1, min(count, round(size / PIECE)))
    return [(count * piece // pieces, count * (piece + 1) // pieces, -1) for piece in range(pieces)]
