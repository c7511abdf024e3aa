"""Bitmaps and lists of positions: the smaller of the two, whatever the cut, and no row lost or won as they unite."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Call, Column, Literal
from headrace.operators.base.batch import Batch
from headrace.operators.on_demand.row_bitmaps import (
    BITMAP,
    CHUNK,
    LIST,
    SCHEMA,
    Containers,
    contained,
    slots_of_owners,
    united,
)
from headrace.operators.on_demand.shared_selections import SharedSelections
from headrace.operators.rows.row_pipeline import RowFilter
from headrace.schema import BIGINT, BOOLEAN
from tests.examples import examples


class Wanting:
    """A query that wants rows with x below a constant."""

    def __init__(self, number: int, below: int) -> None:
        self.id, self.below = f"q{number}", below
        self.steps = (RowFilter(Call("<", (Column("x", BIGINT), Literal(below, BIGINT)), BOOLEAN)),)


def positions(tables: list[pa.Table]) -> dict[int, list[int]]:
    """Owner to all positions that its containers hold, each as often as it is there."""
    rows_of: dict[int, list[int]] = {}
    for table in tables:
        held = Containers.of(table.combine_chunks())
        whose, byte, value = held.spread(np.arange(len(held)))
        bits = np.unpackbits(value[:, None], axis=1, bitorder="little")
        which, bit = np.nonzero(bits)
        for row, at in zip(whose[which], byte[which] * 8 + bit, strict=True):
            rows_of.setdefault(int(held.owner[row]), []).append(int(held.chunk[row]) * CHUNK + int(at))
    return {owner: sorted(positions_of) for owner, positions_of in rows_of.items()}


rows = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=60
)  # (gap before the row, x)


@examples(60)
@given(
    rows=rows,
    first=st.sampled_from([0, 5, CHUNK - 30, (3 << 32) + 17]),
    cuts=st.sets(st.integers(1, 59), max_size=4),
    close=st.booleans(),
    backwards=st.booleans(),
)
def test_what_a_query_wants_is_kept_by_position_whatever_the_cut_the_gaps_and_the_order(
    rows: list[tuple[int, int]], first: int, cuts: set[int], close: bool, backwards: bool
) -> None:
    gaps, x = (np.array(each, np.int64) for each in zip(*rows, strict=True))
    position = first + np.arange(len(rows)) if close else first + np.cumsum(gaps + 1)
    members = tuple(Wanting(number, below) for number, below in enumerate([0, 1, 5, 10, 5], 1))
    edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    tables: list[pa.Table] = []
    for low, high in itertools.pairwise(edges):
        order = np.arange(low, high)[:: -1 if backwards else 1]
        scan = SharedSelections.of(members)
        scan.add(Batch({"x": pa.array(x[order])}, position[order], position[order]))
        tables += [table for table in scan.tables if table.num_rows]
        assert scan.selected_rows.tolist() == [int((x[low:high] < member.below).sum()) for member in members]
    meant = {
        number: position[x < member.below].tolist()
        for number, member in enumerate(members, 1)
        if (x < member.below).any()
    }
    assert positions(tables) == meant
    whole = united(tables) if tables else SCHEMA.empty_table()
    assert positions([whole]) == meant
    held = Containers.of(whole.combine_chunks()) if whole.num_rows else None
    if held is not None:
        assert len(set(zip(held.owner.tolist(), held.chunk.tolist(), strict=True))) == len(held)
        assert all(
            until >= max(each for each in meant[owner] if each // CHUNK == chunk)
            for owner, chunk, until in zip(
                held.owner.tolist(), held.chunk.tolist(), held.until.tolist(), strict=True
            )
        )


@pytest.mark.parametrize(
    ("every", "form"), [(1, BITMAP), (8, BITMAP), (15, BITMAP), (17, LIST), (1000, LIST)]
)
def test_a_list_is_kept_where_it_is_smaller_than_the_bitmap(every: int, form: int) -> None:
    """Two bytes a position against an eighth of a byte a row: a list below one row in sixteen."""
    bits = np.zeros(CHUNK, np.uint8)
    bits[::every] = 1
    packed = np.packbits(bits, bitorder="little")[None]
    owners = np.array([4])
    held = Containers.of(contained(owners, packed, 7, 0, 99, slots_of_owners(owners)).combine_chunks())
    assert held.form.tolist() == [form]
    assert int(held.sizes[0]) == min(2 * len(bits[::every]), (len(bits) - 1) // every * every // 8 + 1)


@pytest.mark.parametrize("untils", [(50, 10), (10, 50), (10, 50, 20)])
def test_united_containers_are_kept_for_as_long_as_the_row_that_is_needed_longest(
    untils: tuple[int, ...],
) -> None:
    """A late row comes after the newest one: its container expires earlier, and must not take the other's rows with it."""
    owners, tables = np.array([4]), []
    for index, until in enumerate(untils):
        bits = np.zeros(CHUNK, np.uint8)
        bits[100 * index] = 1
        packed = np.packbits(bits, bitorder="little")[None]
        tables.append(contained(owners, packed, 7, 0, until, slots_of_owners(owners)))
    whole = united(tables)
    assert Containers.of(whole.combine_chunks()).until.tolist() == [50]
    assert positions([whole]) == {4: [7 * CHUNK + 100 * index for index in range(len(untils))]}
