"""Shared aggregation by signature: rows selected by the same queries are folded into the same cells.

The *signature* of a row is the set of queries that select it. Rows are folded by (signature, cell), then each query of
the signature gets these cells. It pays while signatures are few compared with rows (few attributes, few constants,
skewed values); on four attributes a hundred range queries already make every third row a signature of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints, compact
from headrace.operators.query_index.boxes import by_row
from headrace.operators.query_index.boxes.by_column import Words
from headrace.operators.query_index.index import Compiled
from headrace.operators.query_index.matching.prepare import Prepared
from headrace.operators.shared_aggregation.pairs import fold_patched
from headrace.operators.shared_aggregation.query_cells import FoldInput, Part

_CELLS: Final = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Signatures:
    """`of[row]` is the number of a row's signature, `selected[number]` its queries as truth values, in order of the part."""

    of: Ints
    selected: np.ndarray

    @property
    def count(self) -> int:
        """Number of distinct signatures."""
        return len(self.selected)


def signatures(compiled: Compiled, at: Sequence[Ints], rows: int) -> Signatures:
    """The signatures of rows with these ranks; needs the row-major tables. Exact: bitmaps are compared, not hashes."""
    part = compiled.part
    codes, first = _distinct_ranks([attribute.null + 1 for attribute in part.attributes], at, rows)
    words = -(-part.boxes // 64)
    bits = np.concatenate(
        [
            np.empty((0, words), np.uint64),
            *by_row.blocks_of(part, compiled.tables, [ranks[first] for ranks in at], len(first)),
        ]
    )
    numbers, first_rows = _distinct_bits(bits)
    return Signatures(numbers[codes], by_row.queries_of(part, bits[first_rows]))


def fold(batch: Prepared, number: int, fold_input: FoldInput) -> Iterator[Part]:
    """The cells of one part's queries. Partials of every kind are supported: they are folded, then combined."""
    compiled = batch.parts[number]
    slots = compiled.part.slots
    special = np.array(sorted({*batch.dead, *batch.patches}), np.int64)
    row_signatures = signatures(compiled, batch.at(number), fold_input.rows)
    row_signatures.selected[:, np.isin(slots, special)] = False
    codes, present = compact(
        row_signatures.of * fold_input.count + fold_input.codes, row_signatures.count * fold_input.count
    )
    with np.errstate(all="ignore"):
        folded = {
            partial_column: partial_column.partial.lift(
                fold_input.arguments[partial_column], codes, len(present)
            )
            for partial_column in fold_input.partial_columns
        }
    signature, cell = np.divmod(present, fold_input.count)
    step = max(1, _CELLS // max(fold_input.count, 1))
    for low in range(0, len(slots), step):  # the queries of each signature get its cells
        entries, queries = np.nonzero(row_signatures.selected[:, low : low + step][signature])
        into, occupied = compact(queries * fold_input.count + cell[entries], step * fold_input.count)
        with np.errstate(all="ignore"):
            cells = {
                partial_column: partial_column.partial.reduce(
                    tuple(part[entries] for part in folded[partial_column]), into, len(occupied)
                )
                for partial_column in fold_input.partial_columns
            }
        query, code = np.divmod(occupied, fold_input.count)
        yield Part(slots[low + query], code, cells)
    yield from fold_patched(batch, number, fold_input)


def _distinct_ranks(sizes: Sequence[int], at: Sequence[Ints], rows: int) -> tuple[Ints, Ints]:
    """Numbers of the distinct combinations of ranks, and a row that has each."""
    codes = np.zeros(rows, np.int64)
    present = np.zeros(min(rows, 1), np.int64)
    for size, here in zip(sizes, at, strict=True):
        codes, present = compact(codes * size + here.astype(np.int64), max(len(present), 1) * size)
    first = np.zeros(len(present), np.int64)
    first[codes] = np.arange(rows)
    return codes, first


def _distinct_bits(bits: Words) -> tuple[Ints, Ints]:
    """Numbers of equal rows of bits, and the first row of each."""
    if not bits.shape[1]:
        return np.zeros(len(bits), np.int64), np.zeros(min(len(bits), 1), np.int64)
    kind = pa.binary(bits.shape[1] * 8)
    raw = pa.Array.from_buffers(kind, len(bits), [None, pa.py_buffer(np.ascontiguousarray(bits))])
    numbers = raw.dictionary_encode().indices.to_numpy().astype(np.int64)
    first_rows = np.flatnonzero(
        np.r_[True, np.maximum.accumulate(numbers)[1:] > np.maximum.accumulate(numbers)[:-1]]
    )
    return numbers, first_rows if len(bits) else np.empty(0, np.int64)
