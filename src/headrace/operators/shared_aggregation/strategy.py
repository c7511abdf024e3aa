"""One batch folded for all queries of an index: by which strategy, and the cells that come out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from typing import Literal as Choice

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression
from headrace.operators.base.group_codes import Ints
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.query_index.boxes import by_row
from headrace.operators.query_index.index import Compiled, QueryIndex
from headrace.operators.query_index.matching.prepare import Failed, Prepared, prepared
from headrace.operators.query_index.matching.probe import probe
from headrace.operators.shared_aggregation import bitmaps, histograms, pairs
from headrace.operators.shared_aggregation.lanes import words_needed
from headrace.operators.shared_aggregation.query_cells import Asked, QueryCells, asked, gathered
from headrace.operators.shared_aggregation.signatures import fold as by_signature
from headrace.operators.shared_aggregation.signatures import signatures

Strategy = Choice["bitmaps", "histograms", "probing", "pairs", "signatures"]

SAMPLE: Final = 1024
FEW_SIGNATURES: Final = 0.2
"""Signatures group when a sample has fewer than this share of rows in distinct ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """The cells of all queries, the rows on which one failed (by slot), and how each part of the index was folded."""

    cells: QueryCells
    failed: Mapping[int, Failed]
    strategies: tuple[Strategy, ...]


def fold(
    index: QueryIndex,
    columns: Mapping[str, pa.Array],
    partial_columns: Sequence[PartialColumn],
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
    question = asked(partial_columns, arguments, codes, count)
    batch = prepared(index, columns, question.rows)
    parts = []
    used: list[Strategy] = []
    for number in range(len(batch.at)):
        way = strategy or chosen(batch, number, question)
        if way not in possible(batch, number, question):
            way = "pairs"
        used.append(way)
        parts += list(_folded(batch, number, question, way))
    parts += list(pairs.fold_decided(batch.decided, question))
    return Folded(gathered(parts, question), batch.failed, tuple(used))


def chosen(batch: Prepared, number: int, question: Asked) -> Strategy:
    """The cheapest strategy for a part by what a sample of the batch says, in nanoseconds measured on one core."""
    part, at = batch.parts[number].part, batch.at[number]
    rows = min(batch.rows, SAMPLE)
    sample = np.linspace(0, batch.rows - 1, rows).astype(np.int64)
    can = possible(batch, number, question)
    if "histograms" in can and histograms.table_size(batch, number, question) <= 4 * batch.rows:
        return "histograms"
    looked_at = probe(part, [one[sample] for one in at], rows).candidates * (batch.rows / rows)
    words = words_needed(question.codes, question.count) * part.boxes
    cost: dict[Strategy, float] = {
        "probing": 22.0 * batch.rows + 40.0 * looked_at,
        "bitmaps": 110.0 * batch.rows + 12.0 * words,
        "pairs": 100.0 * batch.rows + 134.0 * part.boxes * (batch.rows / 64) + 20.0 * looked_at,
    }
    if "signatures" in can and rows == SAMPLE:
        cost |= _by_signature_cost(batch.parts[number], [one[sample] for one in at], batch.rows)
    return min((way for way in cost if way in can), key=lambda way: cost[way])


def _by_signature_cost(compiled: Compiled, sample: list[Ints], rows: int) -> dict[Strategy, float]:
    """Nothing where signatures are too many to be a group key: they would still grow with the batch."""
    found = signatures(compiled, sample, SAMPLE)
    share = found.count / SAMPLE
    if share >= FEW_SIGNATURES:
        return {}
    combinations = math.prod(attribute.null + 1 for attribute in compiled.part.attributes)
    numbering = 30.0 if combinations <= 4 * rows else 80.0
    bits = min(1.0, combinations / rows) * 0.5 * compiled.part.boxes
    wanted = float(found.wanted[found.of].sum()) / SAMPLE
    return {"signatures": rows * (numbering + bits + 12.0 * share * wanted)}


def possible(batch: Prepared, number: int, question: Asked) -> frozenset[Strategy]:
    """The strategies that can fold what is asked for a part."""
    found: set[Strategy] = {"pairs", "probing"}
    if bitmaps.takes(question.partial_columns):
        found.add("bitmaps")
    if histograms.takes(batch, number, question.partial_columns):
        found.add("histograms")
    if by_row.fits(batch.parts[number].part):
        found.add("signatures")
    return frozenset(found)


def _folded(batch: Prepared, number: int, question: Asked, way: Strategy) -> Iterator[pairs.Part]:
    if way == "bitmaps":
        return bitmaps.fold(batch, number, question)
    if way == "histograms":
        return histograms.fold(batch, number, question)
    if way == "signatures":
        return by_signature(batch, number, question)
    return pairs.fold(batch, number, question, probing=way == "probing")
