"""Shared aggregation of a batch for all queries of an index, by the strategy with the least estimated cost for each
part of the index: bitmaps, histograms, pairs or signatures; groups, where all conditions of a part are on group keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final
from typing import Literal as Choice

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.native.library import library
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.query_index.boxes import by_row
from headrace.operators.query_index.index import Compiled, QueryIndex
from headrace.operators.query_index.matching.few_rows import are_few
from headrace.operators.query_index.matching.prepare import Failed, Prepared, prepared
from headrace.operators.query_index.matching.probe import probe
from headrace.operators.shared_aggregation import bitmaps, by_group, histograms, pairs
from headrace.operators.shared_aggregation.bitmap_passes import Pass, laid, passes
from headrace.operators.shared_aggregation.lanes import words_needed
from headrace.operators.shared_aggregation.query_cells import (
    DensePart,
    FoldInput,
    Part,
    QueryCells,
    fold_input_of,
    gathered,
)
from headrace.operators.shared_aggregation.signatures import fold as by_signature
from headrace.operators.shared_aggregation.signatures import signatures

Strategy = Choice["groups", "bitmaps", "histograms", "probing", "pairs", "signatures"]

SAMPLE: Final = 1024
MOST_SIGNATURES: Final = 0.2
"""Signatures are a group key if a sample has fewer than this share of rows in distinct ones."""
MOST_TABLES: Final = 4
"""Histograms have at most so many cells a row of the batch, which bounds their memory."""


@dataclass(frozen=True, eq=False)
class Folded:
    """The cells of all queries, the rows on which one failed (by slot), and the strategy of each part of the index.

    Each (slot, code) is in one of the parts at most.
    """

    fold_input: FoldInput
    parts: Sequence[Part | DensePart]
    failed: Mapping[int, Failed]
    strategies: tuple[Strategy, ...]

    @cached_property
    def rows(self) -> int:
        """Number of cells that have rows."""
        return sum(part.rows for part in self.parts)

    @cached_property
    def cells(self) -> QueryCells:
        """The cells that have rows, of all parts."""
        return gathered(self.parts, self.fold_input)


def fold(
    index: QueryIndex,
    columns: Mapping[str, pa.Array],
    partial_columns: Sequence[PartialColumn],
    arguments: Mapping[Expression, pa.Array],
    codes: Ints,
    count: int,
    strategy: Strategy | None = None,
    former: Sequence[Strategy] = (),
    *,
    keys: Mapping[Expression, pa.Array] | None = None,
    owner: Ints | None = None,
) -> Folded:
    """Fold a batch into partials per query and cell.

    `columns` hold the rows by internal name, `arguments` the values of the partials' expressions on them, `codes` in
    0..count-1 the (pane, group) of each row. The first of `partial_columns` must count rows. Rows on which a group key
    or an argument fails must not be in the batch. `former` are the strategies of the parts in a batch like this one: they
    are used again. All strategies give equal cells (sums of doubles to rounding). `keys` are the values of group keys by group, `owner`
    is the group of each (pane, group): parts with conditions on these alone are folded by group, unless another `strategy` is named.
    """
    if strategy not in (None, "groups"):
        keys = None
    fold_input = fold_input_of(partial_columns, arguments, codes, count, keys, owner)
    batch = prepared(index, columns, fold_input.rows, None if keys is None else fold_input.key)
    parts, laid_passes = list[Part | DensePart](), list[Pass]()
    used: list[Strategy] = []
    for number in range(len(batch.parts)):
        way = strategy or (former[number] if len(former) == len(batch.parts) else None)
        if number in batch.of_groups:
            way = "groups"
        if way is None:
            way = chosen(batch, number, fold_input, is_laid=bool(laid_passes))
        if way not in possible(batch, number, fold_input):
            way = "pairs"
        used.append(way)
        if way == "bitmaps" and not laid_passes:
            laid_passes = [laid(batch, fold_input, pass_columns) for pass_columns in passes(fold_input)]
        parts += list(_folded(batch, number, fold_input, way, laid_passes))
    parts += list(pairs.fold_decided(batch.decided, fold_input))
    return Folded(fold_input, parts, batch.failed, tuple(used))


def chosen(batch: Prepared, number: int, fold_input: FoldInput, *, is_laid: bool = False) -> Strategy:
    """The cheapest strategy for a part, estimated from a sample of the batch, in nanoseconds measured on one core.

    `is_laid`: bitmaps aggregate another part, so the batch is laid out whatever is chosen.
    """
    part = batch.parts[number].part
    if are_few(part, batch.rows):
        return "probing"
    rows = min(batch.rows, SAMPLE)
    sample = np.linspace(0, batch.rows - 1, rows).astype(np.int64)
    can = possible(batch, number, fold_input)
    at = [ranks.of(sample) for ranks in batch.ranks[number]]
    visited = probe(part, at, rows).candidates * (batch.rows / rows)
    words = words_needed(fold_input.sizes) * part.boxes
    by_row, by_word = (25.0, 2.0) if library() is not None else (110.0, 12.0)
    if is_laid:
        by_row = 2.0 * len(part.attributes)
    cost: dict[Strategy, float] = {
        "probing": 22.0 * batch.rows + 40.0 * visited,
        "bitmaps": by_row * batch.rows + by_word * words,
        "pairs": 100.0 * batch.rows + 134.0 * part.boxes * (batch.rows / 64) + 20.0 * visited,
    }
    tables = histograms.table_size(batch, number, fold_input)
    if tables <= MOST_TABLES * batch.rows:
        columns = len(part.attributes) * len(fold_input.partial_columns)
        cost["histograms"] = 5.0 * batch.rows * columns + 2.0 * tables
    if "signatures" in can and rows == SAMPLE:
        least = min(cost[way] for way in cost if way in can)
        cost |= _by_signature_cost(batch.parts[number], at, batch.rows, least)
    return min((way for way in cost if way in can), key=lambda way: cost[way])


def _by_signature_cost(
    compiled: Compiled, sample: list[Ints], rows: int, least: float
) -> dict[Strategy, float]:
    """Empty if signatures are too many to be a group key, since they would still grow with the batch, or cost more than `least`.

    The sample's signatures are looked up only where the rest of the cost does not decide: with 10,000 conditions they take 25 ms.
    """
    combinations = math.prod(attribute.null + 1 for attribute in compiled.part.attributes)
    numbering = 30.0 if combinations <= 4 * rows else 80.0
    bits = min(combinations, rows) / rows * 0.5 * compiled.part.boxes  # combinations may exceed all doubles
    if rows * (numbering + bits) >= least:
        return {}
    row_signatures = signatures(compiled, sample, SAMPLE)
    share = row_signatures.count / SAMPLE
    if share >= MOST_SIGNATURES:
        return {}
    queries_per_row = float(row_signatures.selected[row_signatures.of].sum()) / SAMPLE
    return {"signatures": rows * (numbering + bits + 12.0 * share * queries_per_row)}


def possible(batch: Prepared, number: int, fold_input: FoldInput) -> frozenset[Strategy]:
    """The strategies that can fold these partials for a part."""
    if number in batch.of_groups:
        return frozenset({"groups"})
    strategies: set[Strategy] = {"pairs", "probing"}
    if bitmaps.takes(fold_input.partial_columns):
        strategies.add("bitmaps")
    if histograms.takes(batch, number, fold_input.partial_columns):
        strategies.add("histograms")
    if by_row.fits(batch.parts[number].part):
        strategies.add("signatures")
    return frozenset(strategies)


def _folded(
    batch: Prepared, number: int, fold_input: FoldInput, way: Strategy, laid_passes: Sequence[Pass]
) -> Iterator[Part | DensePart]:
    if way == "groups":
        return by_group.fold(batch, number, fold_input)
    if way == "bitmaps":
        return bitmaps.fold(batch, number, fold_input, laid_passes)
    if way == "histograms":
        return histograms.fold(batch, number, fold_input)
    if way == "signatures":
        return by_signature(batch, number, fold_input)
    return pairs.fold(batch, number, fold_input, probing=way == "probing")
