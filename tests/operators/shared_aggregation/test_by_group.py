"""Conditions on group keys are decided once a group, with the cells that deciding each row gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Expression
from headrace.operators.base.block_codes import by_block_and_group
from headrace.operators.base.group_codes import group
from headrace.operators.partials import encoding as at_rest
from headrace.operators.query_index.boxes import by_column
from headrace.operators.query_index.index import QueryIndex
from headrace.operators.query_index.matching import few_rows, prepare, probe
from headrace.operators.query_index.matching.prepare import prepared
from headrace.operators.shared_aggregation import by_group
from headrace.operators.shared_aggregation.query_cells import DensePart, fold_input_of
from headrace.operators.shared_aggregation.strategy import Folded, fold
from tests.examples import examples
from tests.operators.query_index.predicates import SCHEMA, batches, bound, texts
from tests.operators.shared_aggregation.test_shared_aggregation import (
    BITMAP_FEDS,
    ROWS,
    alone,
    column,
    require_added_up_like_cells,
    same,
)

NAMES = tuple(field.name for field in SCHEMA.fields)


def folded_by(
    keys: Sequence[str], index: QueryIndex, columns: dict[str, pa.Array], panes: np.ndarray, feds=BITMAP_FEDS
) -> tuple[Folded, np.ndarray, int]:
    """The fold of a batch grouped by some of its columns, with the code of each row and the number of codes."""
    groups = group([columns[name] for name in keys], len(panes))
    codes, count, _, owner, _ = by_block_and_group(panes, groups)
    arguments = {fed.expression: columns[fed.expression.name] for fed in feds[1:]}
    known = dict(zip(map(column, keys), groups.keys, strict=True))
    return fold(index, columns, feds, arguments, codes, count, keys=known, owner=owner), codes, count


@examples(120)
@given(
    st.lists(texts(), min_size=1, max_size=5),
    batches(200),
    st.sets(st.sampled_from(NAMES), min_size=1).map(sorted),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
)
def test_cells_are_those_of_each_query_alone_whatever_the_keys(
    written: list[str], columns: dict[str, pa.Array], keys: list[str], panes: int, seed: int
) -> None:
    predicates: dict[str, Expression | None] = {f"q{n}": bound(text) for n, text in enumerate(written)}
    index = QueryIndex().changed(predicates)
    pane_of_row = np.random.default_rng(seed).integers(0, panes, len(columns["i"]))
    # The value of a key in a group is the first one's; equal doubles may be -0.0 and 0.0, for which conditions are the same.
    folded, codes, count = folded_by(keys, index, columns, pane_of_row)
    same(folded.cells, alone(predicates, index, columns, BITMAP_FEDS, codes, count), BITMAP_FEDS)
    require_added_up_like_cells(folded, index.next_slot, count)


def on_keys(queries: int, width: int) -> dict[str, Expression | None]:
    """Ranges of two keys, of about `width` of 40 values each; every seventh query has no condition, every ninth two ranges."""
    random = np.random.default_rng(queries)
    written: dict[str, Expression | None] = {}
    for number, (low, other) in enumerate(random.integers(0, 40, (queries, 2)).tolist()):
        text = f"i BETWEEN {low} AND {low + width - 1}" + (f" AND b >= {other - width}" if number % 3 else "")
        if number % 9 == 8:
            text += f" OR i = {other}"
        written[f"q{number}"] = None if number % 7 == 6 else bound(text)
    return written


def rows_of(count: int) -> dict[str, pa.Array]:
    random = np.random.default_rng(count)
    numbers = random.integers(0, 40, (3, count))
    return {
        "i": pa.array(numbers[0], pa.int32(), mask=numbers[0] == 3),
        "b": pa.array(numbers[1], pa.int64()),
        "d": pa.array(random.integers(0, 9, count).astype(float), mask=numbers[2] == 1),
    }


FEDS = (
    ROWS,
    at_rest.count_partial(column("b")),
    at_rest.count_partial(column("d")),
    at_rest.sum_partial(column("b")),
    at_rest.extreme_partial(column("d"), True),
)


@pytest.mark.parametrize("path", ["comparisons", "searches", "bitmaps"])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("width", [2, 30])
def test_each_way_to_decide_groups_gives_the_same_cells(
    path: str, dense: bool, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_group, "_DENSE", 1 if dense else 1 << 40)
    monkeypatch.setattr(by_column, "TILE_BOXES", 16)
    monkeypatch.setattr(prepare, "BLOCK_WORDS", 8)  # of 512 groups
    monkeypatch.setattr(probe, "_PAIRS", 64)
    monkeypatch.setattr(few_rows, "MOST", 1 << 30 if path == "comparisons" else 0)
    monkeypatch.setattr(by_group, "searches_pay", lambda *_: path == "searches")
    predicates = on_keys(60, width)
    index = QueryIndex().changed(dict(list(predicates.items())[:57]))
    index = index.changed(dict(list(predicates.items())[57:]), remove=["q4", "q6", "q17"])
    assert index.dead_slots(), "dropped queries are still in the part"
    live = {name: condition for name, condition in predicates.items() if name not in ("q4", "q6", "q17")}
    columns = rows_of(3000)
    folded, codes, count = folded_by(("i", "b"), index, columns, np.arange(3000) // 1500, FEDS)
    assert set(folded.strategies) == {"groups"}
    same(folded.cells, alone(live, index, columns, FEDS, codes, count), FEDS)
    require_added_up_like_cells(folded, index.next_slot, count)
    if dense and width == 30 and path != "searches":
        assert any(isinstance(part, DensePart) for part in folded.parts)
        for part in folded.parts:  # counts are one array, which is added up once
            if isinstance(part, DensePart):
                assert part.cells[ROWS][0] is part.cells[FEDS[1]][0] is part.counts


def test_only_parts_with_conditions_on_keys_alone_are_decided_by_group() -> None:
    columns = rows_of(500)
    panes = np.zeros(500, np.int64)
    conditions = {"one": bound("i < 20"), "all": None}
    index = QueryIndex().changed(conditions)
    assert folded_by(("i",), index, columns, panes, FEDS)[0].strategies == ("groups",)
    assert folded_by(("b",), index, columns, panes, FEDS)[0].strategies != ("groups",)
    both = QueryIndex().changed({**conditions, "other": bound("i < 20 AND b < 5")})
    assert folded_by(("i",), both, columns, panes, FEDS)[0].strategies != ("groups",)
    assert folded_by(("b", "i"), both, columns, panes, FEDS)[0].strategies == ("groups",)
    many = {f"b{number}": bound(f"b < {number}") for number in range(40)}
    mixed = QueryIndex().changed(many).changed({"late": bound("i < 20")})
    folded, codes, count = folded_by(("i",), mixed, columns, panes, FEDS)
    assert [way == "groups" for way in folded.strategies] == [False, True]
    every = {**many, "late": bound("i < 20")}
    same(folded.cells, alone(every, mixed, columns, FEDS, codes, count), FEDS)
    anything = QueryIndex().changed({"all": None, "every": None})
    assert folded_by(("b",), anything, columns, panes, FEDS)[0].strategies == ("groups",)


def test_what_is_decided_does_not_grow_with_the_rows() -> None:
    """As many ranks as groups are looked up, whatever the number of rows."""
    index = QueryIndex().changed(on_keys(20, 5))
    decided = []
    for rows in (2_000, 20_000):
        columns = rows_of(rows)
        groups = group([columns["i"], columns["b"]], rows)
        codes, count, _, owner, _ = by_block_and_group(np.zeros(rows, np.int64), groups)
        known = dict(zip((column("i"), column("b")), groups.keys, strict=True))
        fold_input = fold_input_of((ROWS,), {}, codes, count, known, owner)
        batch = prepared(index, columns, rows, fold_input.key)
        decided.append([len(ranks) for number in range(len(batch.parts)) for ranks in batch.at(number)])
        assert set(decided[-1]) == {count}
    assert max(decided[1]) <= 41 * 40, "each pair of keys, or NULL, once"
