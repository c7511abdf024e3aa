"""The compiled kernel of bitmaps gives the partials of its numpy form, with every instruction set."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.native.library import FILE, library, widest
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Cells
from headrace.operators.query_index.index import QueryIndex
from headrace.operators.query_index.matching.prepare import prepared
from headrace.operators.shared_aggregation import bitmaps, compiled_bitmaps
from headrace.operators.shared_aggregation.bitmap_passes import laid, passes
from headrace.operators.shared_aggregation.query_cells import FoldInput, fold_input_of
from tests.examples import examples
from tests.operators.query_index.predicates import batches, bound, texts
from tests.operators.shared_aggregation.test_shared_aggregation import BITMAP_FEDS, lowered, paper, plain

WIDTHS = range(widest() + 1)


def test_the_kernels_were_built() -> None:
    assert FILE.exists(), "make setup compiles them"
    assert library() is not None


def both_ways(
    index: QueryIndex, columns: dict[str, pa.Array], fold_input: FoldInput
) -> Iterator[tuple[PartialColumn, Cells, Cells]]:
    """Dense cells by the numpy form, and by the kernel, for every part, pass, run of cells, instruction set and partial."""
    batch = prepared(index, columns, fold_input.rows)
    for number, compiled in enumerate(batch.parts):
        for partial_columns in passes(fold_input):
            pass_ = laid(batch, fold_input, partial_columns, compiled=False)
            by_kernel = laid(batch, fold_input, partial_columns)
            at = [ranks.of(pass_.lanes.row) for ranks in batch.ranks[number]]
            if pass_.lane_of is not None:
                assert not compiled_bitmaps.takes(pass_)
                continue
            for cells in (range(fold_input.count), range(1, fold_input.count), range(fold_input.count - 1)):
                with np.errstate(all="ignore"):
                    plain_cells = bitmaps.of_pass(batch, number, at, pass_, cells)
                    for width in WIDTHS:
                        found = compiled_bitmaps.of_pass(
                            compiled, batch.ranks[number], by_kernel, cells, width
                        )
                        for place, expected in plain_cells.items():
                            yield fold_input.partial_columns[place], expected, found[place]


def agree(index: QueryIndex, columns: dict[str, pa.Array], fold_input: FoldInput) -> int:
    seen = 0
    for column, theirs, ours in both_ways(index, columns, fold_input):
        if column.encoding == "double":
            np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-9)
        elif not all(map(np.array_equal, ours, theirs)):
            flat = [tuple(part.ravel() for part in cells) for cells in (ours, theirs)]
            assert lowered(column, flat[0]) == lowered(column, flat[1]), column
        seen += 1
    return seen


def everything(columns: dict[str, pa.Array], codes: np.ndarray, count: int) -> FoldInput:
    arguments = {column.expression: columns[column.expression.name] for column in BITMAP_FEDS[1:]}  # type: ignore[union-attr]
    return fold_input_of(BITMAP_FEDS, arguments, codes, count)


@examples(60)
@given(st.lists(texts(), min_size=1, max_size=5), batches(300), st.integers(1, 70), st.integers(0, 99))
def test_generated_predicates_and_batches(
    predicates: list[str], columns: dict[str, pa.Array], count: int, seed: int
) -> None:
    index = QueryIndex().changed({f"q{n}": bound(text) for n, text in enumerate(predicates)})
    codes = np.random.default_rng(seed).integers(0, count, len(columns["i"]))
    agree(index, columns, everything(columns, codes, count))


@pytest.mark.parametrize("cells", [1, 3, 40, 3000])
def test_many_blocks_with_cells_larger_and_smaller_than_a_block(cells: int) -> None:
    columns = plain(20_000, 2)
    columns["s"] = pa.array(np.char.mod("%d", np.arange(20_000) % 97))
    for name in ("m", "w"):
        columns[name] = pa.array(np.arange(20_000) % 1009).cast(pa.decimal128(38, 4))
    codes = np.random.default_rng(5).integers(0, cells, 20_000)
    assert agree(QueryIndex().changed(paper(150)), columns, everything(columns, codes, cells)) > 3


def test_cells_of_few_words_share_a_block_that_a_large_cell_ends() -> None:
    sizes = [1, 70, 900, 1024, 1025, 3, 4096, 4097, 64, 0, 12_800, 200, 1, 1100, 5]
    codes = np.random.default_rng(7).permutation(np.repeat(np.arange(len(sizes)), sizes))
    columns = plain(len(codes), 3)
    columns["s"] = pa.array(np.char.mod("%d", np.arange(len(codes)) % 97))
    for name in ("m", "w"):
        columns[name] = pa.array(np.arange(len(codes)) % 1009).cast(pa.decimal128(38, 4))
    assert agree(QueryIndex().changed(paper(60)), columns, everything(columns, codes, len(sizes))) > 3


def test_conditions_of_more_attributes_than_are_unrolled_of_several_intervals_and_of_none() -> None:
    columns = plain(9_000, 4) | {"f": pa.array(np.arange(9_000) % 50, pa.float32())}
    columns["m"] = pa.array(np.arange(9_000) % 1009).cast(pa.decimal128(38, 4)).cast(pa.decimal128(10, 2))
    terms = [
        "t < 120",
        "i > 3",
        "b BETWEEN 10 AND 240",
        "d < 220",
        "f < 48",
        "m < 1000",
        "(b < 100 OR b > 120)",
    ]
    texts_ = [
        " AND ".join(terms[first : last + 1]) for last in range(len(terms)) for first in range(last + 1)
    ]
    index = QueryIndex().changed({f"q{n}": bound(text) for n, text in enumerate([*texts_, "t < -9", "TRUE"])})
    codes = np.random.default_rng(9).integers(0, 3, 9_000)
    assert agree(index, columns, fold_input_of(BITMAP_FEDS[:1], {}, codes, 3)) > 0


def test_more_constants_than_rows_of_a_block() -> None:
    rng = np.random.default_rng(3)
    values = pa.array(rng.integers(0, 2**40, 10_000))
    edges = np.sort(rng.integers(0, 2**40, 12_000)).reshape(-1, 2).tolist()
    index = QueryIndex().changed({f"q{n}": bound(f"b BETWEEN {a} AND {b}") for n, (a, b) in enumerate(edges)})
    fold_input = fold_input_of(BITMAP_FEDS[:1], {}, np.zeros(10_000, np.int64), 1)
    assert agree(index, {"b": values}, fold_input) > 0
