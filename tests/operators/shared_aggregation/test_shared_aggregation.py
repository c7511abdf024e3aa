"""Folding a batch for many queries at once gives every query the partials it would have alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Column, Expression, Named
from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.aggregates.cell_table import Layout, fresh_slots, merge
from headrace.operators.panes.pane_keys import pane_keys
from headrace.operators.partials import encoding as at_rest
from headrace.operators.partials.central_moments import Moments
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Cells, Sum
from headrace.operators.query_index.boxes import by_column
from headrace.operators.query_index.index import Compiled, QueryIndex
from headrace.operators.shared_aggregation import bitmaps
from headrace.operators.shared_aggregation import strategy as strategy_module
from headrace.operators.shared_aggregation.query_cells import (
    DensePart,
    Part,
    QueryCells,
    fold_input_of,
    taken,
)
from headrace.operators.shared_aggregation.signatures import Signatures, signatures
from headrace.operators.shared_aggregation.strategy import Folded, Strategy, fold
from headrace.schema import BIGINT, INT
from tests.examples import examples
from tests.operators.query_index.predicates import SCHEMA, batches, bound, brute, texts

STRATEGIES: tuple[Strategy | None, ...] = ("bitmaps", "histograms", "probing", "pairs", "signatures", None)
ROWS = at_rest.rows_partial()


def column(name: str) -> Column:
    return Column(name, SCHEMA.field(name).type)


BITMAP_FEDS: tuple[PartialColumn, ...] = (
    ROWS,
    *(at_rest.count_partial(column(name)) for name in ("b", "s", "d")),
    *(at_rest.sum_partial(column(name)) for name in ("t", "i", "b", "d", "m", "w")),
    *(
        at_rest.extreme_partial(column(name), largest)
        for name in ("b", "d", "s")
        for largest in (True, False)
    ),
)
ALL_FEDS: tuple[PartialColumn, ...] = (*BITMAP_FEDS, at_rest.moments_partial(column("m")))


def alone(
    predicates: dict[str, Expression | None],
    index: QueryIndex,
    columns: dict[str, pa.Array],
    partial_columns: tuple[PartialColumn, ...],
    codes: np.ndarray,
    count: int,
) -> dict[tuple[int, int], dict[PartialColumn, Cells]]:
    """The cells of every query and (pane, group) with rows, one query after the other."""
    fold_input = fold_input_of(
        partial_columns,
        {
            partial_column.expression: columns[partial_column.expression.name]
            for partial_column in partial_columns[1:]
        },
        codes,
        count,
    )  # type: ignore[union-attr]
    cells_of: dict[tuple[int, int], dict[PartialColumn, Cells]] = {}
    for name, predicate in predicates.items():
        rows = np.flatnonzero(brute(predicate, columns)[0])
        with np.errstate(all="ignore"):
            cells = {
                partial_column: partial_column.partial.lift(
                    taken(fold_input.arguments[partial_column], rows), codes[rows], count
                )
                for partial_column in partial_columns
            }
        for code in np.flatnonzero(cells[ROWS][0]).tolist():
            one = {
                partial_column: tuple(part[code : code + 1] for part in cells[partial_column])
                for partial_column in partial_columns
            }
            cells_of[index.entry(name).slot, code] = one
    return cells_of


def lowered(partial_column: PartialColumn, cells: Cells) -> list[object]:
    """What the cells mean: limbs carried, so that two ways of writing one integer are equal."""
    if isinstance(partial_column.partial, Sum) and partial_column.partial.integer:
        limbs = [part.tolist() for part in cells]
        return [
            sum(limb << (32 * index) for index, limb in enumerate(parts))
            for parts in zip(*limbs, strict=True)
        ]
    return [part.tolist() for part in cells]


def same(
    together: QueryCells,
    expected: dict[tuple[int, int], dict[PartialColumn, Cells]],
    partial_columns: tuple[PartialColumn, ...],
) -> None:
    keys = list(zip(together.slots.tolist(), together.codes.tolist(), strict=True))
    assert len(set(keys)) == len(keys)
    assert set(keys) == set(expected)
    for index, key in enumerate(keys):
        for partial_column in partial_columns:
            cells = tuple(part[index : index + 1] for part in together.answer.cells[partial_column])
            if partial_column.encoding == "double":
                near = 1e-6 if isinstance(partial_column.partial, Moments) else 0.0  # means of ±10^8 cancel
                np.testing.assert_allclose(cells, expected[key][partial_column], rtol=1e-9, atol=near)
            else:
                assert lowered(partial_column, cells) == lowered(
                    partial_column, expected[key][partial_column]
                ), (key, partial_column)


@examples(80)
@given(
    st.lists(texts(), min_size=1, max_size=5),
    batches(300),
    st.sampled_from(STRATEGIES),
    st.integers(1, 9),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_shared_partials_are_those_of_each_query_alone(
    written: list[str],
    columns: dict[str, pa.Array],
    strategy: Strategy | None,
    count: int,
    moments: bool,
    seed: int,
) -> None:
    predicates: dict[str, Expression | None] = {f"q{n}": bound(text) for n, text in enumerate(written)}
    index = QueryIndex().changed(predicates)
    partial_columns = ALL_FEDS if moments else BITMAP_FEDS
    codes = np.random.default_rng(seed).integers(0, count, len(columns["i"]))
    arguments = {
        partial_column.expression: columns[partial_column.expression.name]
        for partial_column in partial_columns[1:]
    }  # type: ignore[union-attr]
    folded = fold(index, columns, partial_columns, arguments, codes, count, strategy)
    same(folded.cells, alone(predicates, index, columns, partial_columns, codes, count), partial_columns)
    require_added_up_like_cells(folded, index.next_slot, count)


def require_added_up_like_cells(folded: Folded, slots: int, count: int) -> None:
    """Its parts, added twice to arrays of all slots and codes, are twice the cells that have rows, and nothing else."""
    partial_columns = folded.cells.answer.cells
    if any(
        isinstance(partial_column.partial, Moments) or folded.cells.answer.dictionaries
        for partial_column in partial_columns
    ):
        return
    whole = {
        partial_column: partial_column.partial.identity((slots, count)) for partial_column in partial_columns
    }
    columns = np.random.default_rng(count).permutation(count)
    for part in (*folded.parts, *folded.parts):
        part.add_to(whole, columns)
    at = folded.cells.slots, columns[folded.cells.codes]
    assert folded.rows == len(at[0])
    for partial_column, cells in partial_columns.items():
        expected = partial_column.partial.identity((slots, count))
        with np.errstate(all="ignore"):
            twice = partial_column.partial.combine(cells, cells)
        for parts, values in zip(expected, twice, strict=True):
            parts[at] = values
        for parts, wanted in zip(whole[partial_column], expected, strict=True):
            np.testing.assert_array_equal(parts, wanted)


def paper(queries: int, seed: int = 1) -> dict[str, Expression | None]:
    """One to four intervals over four attributes, constants as in PSoup's experiments."""
    rng = np.random.default_rng(seed)
    texts_ = {}
    for number in range(queries):
        factors = []
        for name in rng.choice(["t", "i", "b", "d"], rng.integers(1, 5), replace=False).tolist():
            low = int(rng.integers(0, 8) * 32 if rng.random() < 0.2 else rng.integers(0, 256))
            factors.append(f"{name} BETWEEN {low} AND {low + int(rng.integers(0, 256))}")
        texts_[f"q{number}"] = bound(" AND ".join(factors))
    return texts_


def plain(rows: int, seed: int) -> dict[str, pa.Array]:
    rng = np.random.default_rng(seed)
    return {
        "t": pa.array(rng.integers(0, 128, rows), pa.int8()),
        "i": pa.array(rng.integers(0, 256, rows), pa.int32()),
        "b": pa.array(rng.integers(0, 256, rows), pa.int64()),
        "d": pa.array(rng.integers(0, 256, rows).astype(np.float64)),
    }


def shared(
    index: QueryIndex, columns: dict[str, pa.Array], codes: np.ndarray, count: int, way: Strategy | None
) -> Folded:
    partial_columns = (ROWS, at_rest.sum_partial(column("i")), at_rest.sum_partial(column("d")))
    return fold(
        index,
        columns,
        partial_columns,
        {column("i"): columns["i"], column("d"): columns["d"]},
        codes,
        count,
        way,
    )


@pytest.mark.parametrize("way", STRATEGIES)
def test_hundreds_of_queries_over_blocks_tiles_and_ranges_of_cells(
    way: Strategy | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_column, "TILE_BOXES", 32)
    monkeypatch.setattr(bitmaps, "_CELLS", 1 << 12)
    predicates, columns, count = paper(150), plain(9000, 2), 40
    index = QueryIndex().changed(dict(list(predicates.items())[:140]))
    index = index.changed(dict(list(predicates.items())[140:]), remove=["q3", "q77"])
    live = {name: predicate for name, predicate in predicates.items() if name not in ("q3", "q77")}
    codes = np.random.default_rng(5).integers(0, count, 9000)
    together = shared(index, columns, codes, count, way)
    partial_columns = tuple(together.cells.answer.cells)
    same(together.cells, alone(live, index, columns, partial_columns, codes, count), partial_columns)
    require_added_up_like_cells(together, index.next_slot, count)


def test_sums_of_64_bit_integers_are_exact_at_both_ends() -> None:
    values = [2**63 - 1, -(2**63), 2**63 - 1, 2**63 - 1, 5, None]
    columns = {"i": pa.array([1, 1, 1, 2, 2, 2], pa.int32()), "b": pa.array(values, pa.int64())}
    index = QueryIndex().changed({"one": bound("i = 1"), "all": None, "b": bound("b > 0")})
    partial_column = at_rest.sum_partial(Column("b", BIGINT))
    for way in STRATEGIES:
        folded = fold(
            index,
            columns,
            (ROWS, partial_column),
            {Column("b", BIGINT): columns["b"]},
            np.zeros(6, np.int64),
            1,
            way,
        ).cells
        sums = dict(
            zip(
                folded.slots.tolist(),
                lowered(partial_column, folded.answer.cells[partial_column]),
                strict=True,
            )
        )
        top = 2**63 - 1
        assert sums == {0: 2 * top - 2**63, 1: 3 * top - 2**63 + 5, 2: 3 * top + 5}


def test_an_infinity_reaches_only_the_queries_that_want_its_row() -> None:
    columns = {"i": pa.array([1, 2, 3, 4], pa.int32()), "d": pa.array([1.0, np.inf, np.nan, -np.inf])}
    written = ["i = 1", "i <= 2", "i IN (1, 3)", "i IN (2, 4)", "i IN (1, 4)"]
    index = QueryIndex().changed({text: bound(text) for text in written})
    partial_column = at_rest.sum_partial(column("d"))
    folded = fold(
        index,
        columns,
        (ROWS, partial_column),
        {column("d"): columns["d"]},
        np.zeros(4, np.int64),
        1,
        "bitmaps",
    ).cells
    sums = dict(zip(folded.slots.tolist(), folded.answer.cells[partial_column][0].tolist(), strict=True))
    in_order = [sums[index.entry(text).slot] for text in written]
    np.testing.assert_array_equal(in_order, [1.0, np.inf, np.nan, np.nan, -np.inf])


def test_the_cells_go_into_the_tables_of_the_pane_store() -> None:
    columns, count = plain(500, 8), 6
    index = QueryIndex().changed(paper(5))
    codes = np.random.default_rng(5).integers(0, count, 500)
    together = shared(index, columns, codes, count, None).cells
    panes, groups = np.divmod(together.codes, 3)
    layout = Layout(
        (Named("g", Column("g", BIGINT)), Named("q", Column("q", BIGINT))), tuple(together.answer.cells)
    )
    keys = [pa.array(groups), pa.array(together.slots)]
    table = layout.table(pane_keys(panes), keys, fresh_slots(keys[:1], together.rows, None), together.answer)
    assert merge(layout, [table]).num_rows == together.rows


def test_an_averaged_query_keeps_a_sum_and_a_count_so_that_cuts_do_not_matter() -> None:
    columns, count = plain(400, 4), 2
    index = QueryIndex().changed(paper(20))
    codes = np.zeros(400, np.int64)
    whole = shared(index, columns, codes, count, None).cells
    halves = [
        shared(index, {n: c.slice(low, 200) for n, c in columns.items()}, codes[:200], count, None).cells
        for low in (0, 200)
    ]
    layout = Layout((Named("q", Column("q", BIGINT)),), tuple(whole.answer.cells))

    def table(cells_of_queries: QueryCells) -> pa.Table:
        slots = np.zeros(cells_of_queries.rows, np.int16)
        return layout.table(
            pane_keys(cells_of_queries.codes),
            [pa.array(cells_of_queries.slots)],
            slots,
            cells_of_queries.answer,
        )

    merged, direct = (
        merge(layout, tables).sort_by("k0") for tables in (list(map(table, halves)), [table(whole)])
    )
    assert merged.equals(direct)


def test_the_strategy_follows_what_a_sample_of_the_batch_says() -> None:
    rows, codes = 20000, np.random.default_rng(5).integers(0, 10, 20000)
    columns = plain(rows, 3)

    def used(
        predicates: dict[str, Expression | None], distinct: int | None = None, *, moments: bool = False
    ) -> tuple[Strategy, ...]:
        narrow = (
            columns
            if distinct is None
            else {
                name: pa.array(np.arange(rows) % distinct * 6, values.type)
                for name, values in columns.items()
            }
        )
        partial = at_rest.moments_partial(column("i")) if moments else at_rest.sum_partial(column("i"))
        partial_columns = (ROWS, partial)
        index = QueryIndex().changed(predicates)
        return fold(index, narrow, partial_columns, {column("i"): narrow["i"]}, codes, 10).strategies

    mixed = {name: predicate for name, predicate in paper(300).items() if str(predicate).count("Column") > 2}
    assert used(mixed) == ("bitmaps",)
    # Twelve queries over columns of twenty values: far fewer signatures than rows, and many rows in each.
    few = {f"q{n}": bound(f"i > {3 * n} AND b < {60 + 3 * n}") for n in range(12)}
    assert used(few, distinct=20, moments=True) == ("signatures",)
    assert used(few, distinct=20) == (
        "bitmaps",
    )  # in the compiled kernel they cost less than a number per signature
    assert used({f"q{n}": bound(f"i > {n}") for n in range(200)}) == ("histograms",)
    assert used({f"q{n}": bound(f"i = {n} AND b = {n} AND d = {n}.0D") for n in range(3000)}) == ("probing",)
    # Queries of one column are folded with the others while they are few for each column.
    assert used(mixed | {f"one{n}": bound(f"i > {n}") for n in range(255)}) == ("bitmaps",)
    assert used(mixed | {f"one{n}": bound(f"{'ib'[n % 2]} > {n}") for n in range(511)}) == ("bitmaps",)
    assert len(used(mixed | {f"one{n}": bound(f"i > {n}") for n in range(256)})) == 2
    assert used(mixed | {f"one{n}": bound(f"i > {n}") for n in range(2000)}) == ("bitmaps", "histograms")


def test_signatures_are_counted_only_where_the_rest_of_their_cost_does_not_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = list[int]()

    def counting(compiled: Compiled, at: Sequence[np.ndarray], rows: int) -> Signatures:
        counted.append(rows)
        return signatures(compiled, at, rows)

    monkeypatch.setattr(strategy_module, "signatures", counting)
    rows = 20_000
    columns, codes = plain(rows, 3), np.arange(rows) % 10
    assert set(shared(QueryIndex().changed(paper(2000)), columns, codes, 10, None).strategies) <= {
        "bitmaps",
        "histograms",
    }
    assert not counted
    few = {f"q{n}": bound(f"i > {3 * n} AND b < {60 + 3 * n}") for n in range(12)}
    narrow = {name: pa.array(np.arange(rows) % 20 * 6, values.type) for name, values in columns.items()}
    partials = (ROWS, at_rest.moments_partial(column("i")))
    folded = fold(QueryIndex().changed(few), narrow, partials, {column("i"): narrow["i"]}, codes, 10)
    assert (folded.strategies, counted) == (("signatures",), [strategy_module.SAMPLE])


def test_attributes_may_have_more_combinations_than_a_double_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    index, columns, codes = QueryIndex().changed(paper(300)), plain(5000, 3), np.arange(5000) % 10
    monkeypatch.setattr(strategy_module.math, "prod", lambda _: 10**400)
    assert "signatures" not in shared(index, columns, codes, 10, None).strategies


@pytest.mark.parametrize(("most", "kind"), [(260, Part), (5, DensePart)])
def test_arrays_that_would_be_mostly_empty_are_not_kept(most: int, kind: type) -> None:
    """Conditions that one row of 256 satisfies, or nearly all of them, over fifty groups."""
    conditions = {f"q{n}": bound(f"i >= {n} AND b < 300 AND i < {n + 260 // most}") for n in range(200)}
    folded = shared(QueryIndex().changed(conditions), plain(2000, 3), np.arange(2000) % 50, 50, "bitmaps")
    assert {type(part) for part in folded.parts} == {kind}


def test_few_rows_are_compared_with_each_query() -> None:
    partial_columns = (ROWS, at_rest.sum_partial(column("i")))
    index = QueryIndex().changed({f"q{n}": bound(f"i > {3 * n} AND b < {60 + 3 * n}") for n in range(100)})

    def used(rows: int) -> tuple[Strategy, ...]:
        columns, codes = plain(rows, 3), np.arange(rows) % 5
        return fold(index, columns, partial_columns, {column("i"): columns["i"]}, codes, 5).strategies

    assert (used(40), used(4000)) == (("probing",), ("bitmaps",))


def test_without_rows_there_are_no_cells() -> None:
    columns = {"i": pa.array([], pa.int32()), "d": pa.array([], pa.float64())}
    index = QueryIndex().changed({"a": None, "b": bound("i > 3")})
    for way in STRATEGIES:
        assert shared(index, columns, np.empty(0, np.int64), 0, way).cells.rows == 0
    assert shared(QueryIndex(), plain(5, 1), np.zeros(5, np.int64), 1, None).cells.rows == 0


def test_moments_cannot_be_made_from_bitmaps_and_are_not() -> None:
    columns = plain(50, 1)
    partial_column = at_rest.moments_partial(Column("i", INT))
    assert isinstance(partial_column.partial, Moments)
    index = QueryIndex().changed(paper(3))
    folded = fold(
        index,
        columns,
        (ROWS, partial_column),
        {Column("i", INT): columns["i"]},
        np.zeros(50, np.int64),
        1,
        "bitmaps",
    )
    assert set(folded.strategies) == {"pairs"}
    assert isinstance(folded.cells.answer, Answer)
