"""One batch folded for all queries of an index: by which strategy, and the cells that come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from typing import Literal as Choice

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions import Expression
from headrace.operators.cells import Fed
from headrace.operators.grouping import Ints
from headrace.operators.query_index.index import QueryIndex
from headrace.operators.query_index.preparing import Failed, Prepared, prepared
from headrace.operators.query_index.probing import probe
from headrace.operators.shared_aggregation import bitmaps, pairs
from headrace.operators.shared_aggregation.cells_of_queries import Asked, QueryCells, asked, gathered
from headrace.operators.shared_aggregation.lanes import words_needed

Strategy = Choice["bitmaps", "probing", "pairs"]

SAMPLE: Final = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """The cells of all queries, the rows on which one failed (by slot), and how each side was folded."""

    cells: QueryCells
    failed: Mapping[int, Failed]
    strategies: tuple[Strategy, ...]


def fold(
    index: QueryIndex,
    columns: Mapping[str, pa.Array],
    feds: Sequence[Fed],
    arguments: Mapping[Expression, pa.Array],
    codes: Ints,
    count: int,
    strategy: Strategy | None = None,
) -> Folded:
    """Fold a batch into partials per query and cell.

    `columns` hold the rows by internal name, `arguments` the values of the feds' expressions on them, `codes` in
    0..count-1 the (pane, group) of each row. The first of `feds` must count rows. Rows on which a group key or an argument
    fails must have been taken out before. All strategies give equal cells (sums of doubles to rounding).
    """
    question = asked(feds, arguments, codes, count)
    batch = prepared(index, columns, question.rows)
    parts = []
    used: list[Strategy] = []
    for number in range(len(batch.at)):
        way = strategy or chosen(batch, number, question)
        if way == "bitmaps" and not bitmaps.takes(feds):
            way = "pairs"
        used.append(way)
        if way == "bitmaps":
            parts += list(bitmaps.fold(batch, number, question))
        else:
            parts += list(pairs.fold(batch, number, question, probing=way == "probing"))
    parts += list(pairs.fold_decided(batch.decided, question))
    return Folded(gathered(parts, question), batch.failed, tuple(used))


def chosen(batch: Prepared, number: int, question: Asked) -> Strategy:
    """The cheapest strategy for a side by what a sample of the batch says, in nanoseconds measured on one core."""
    part, at = batch.index.sides[number].plain, batch.at[number]
    rows = min(batch.rows, SAMPLE)
    sample = np.linspace(0, batch.rows - 1, rows).astype(np.int64)
    looked_at = probe(part, [one[sample] for one in at], rows).candidates * (batch.rows / rows)
    words = words_needed(question.codes, question.count) * part.boxes
    cost: dict[Strategy, float] = {
        "probing": 40.0 * looked_at,
        "bitmaps": 12.0 * words,
        "pairs": (70.0 + 64.0) * part.boxes * (batch.rows / 64),
    }
    if not bitmaps.takes(question.feds):
        del cost["bitmaps"]
    return min(cost, key=lambda way: cost[way])
