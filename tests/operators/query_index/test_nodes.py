"""The vectorised index finds what the paper's index of nodes with five arrays finds; and what that one needs to be right."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.query_index.index import QueryIndex
from headrace.operators.query_index.matching.match import Kernel, match
from tests.operators.query_index.nodes import OPERATORS, Factor, NodeIndex
from tests.operators.query_index.predicates import bound

factors = st.tuples(st.just("r"), st.sampled_from("itb"), st.sampled_from(OPERATORS), st.integers(-3, 9))
conjunctions = st.lists(st.lists(factors, max_size=5), min_size=1, max_size=12)
values = st.one_of(st.none(), st.integers(-4, 10))
rows = st.lists(st.fixed_dictionaries(dict.fromkeys("itb", values)), min_size=1, max_size=70)
changes = st.lists(st.integers(0, 11), max_size=6)


def written(conjunction: list[Factor]) -> str:
    return (
        " AND ".join(f"{attribute} {op} {constant}" for _, attribute, op, constant in conjunction) or "TRUE"
    )


@given(conjunctions, rows, changes, st.sampled_from(["rows", "columns", "pairs", None]))
def test_the_vectorised_index_wants_what_the_nodes_count(
    asked: list[list[Factor]], table: list[dict[str, int | None]], dropped: list[int], kernel: Kernel | None
) -> None:
    nodes, index = NodeIndex(), QueryIndex()
    for number, conjunction in enumerate(asked):
        nodes.register(number, *conjunction)
    index = index.changed({str(n): bound(written(conjunction)) for n, conjunction in enumerate(asked)})
    gone = {number for number in dropped if number < len(asked)}
    for number in gone:
        nodes.drop(number)
    index = index.changed({}, [str(number) for number in gone])
    kinds = {"i": pa.int32(), "t": pa.int8(), "b": pa.int64()}
    columns = {name: pa.array([row[name] for row in table], kind) for name, kind in kinds.items()}
    matches = match(index, columns, len(table), kernel)
    masks = {number: matches.rows_of(index.entry(str(number)).slot) for number in nodes.factors}
    for position, row in enumerate(table):
        assert {number for number, mask in masks.items() if mask[position]} == nodes.wanted("r", row)


def golden(**how: bool) -> list[set[int]]:
    index = NodeIndex(**how)
    for number, operator in enumerate(OPERATORS, 1):
        index.register(number, ("r", "a", operator, 5))
    index.register(6)
    index.register(7, ("r", "a", "<", 5), ("r", "a", ">", 5))
    return [index.wanted("r", {"a": value}) for value in (4, 5, 6, None)]


def test_the_golden_example() -> None:
    assert golden() == [{1, 2, 6}, {2, 3, 4, 6}, {4, 5, 6}, {6}]


@pytest.mark.parametrize("left_out", ["without_factors", "fresh"])
def test_counting_alone_gets_the_golden_example_wrong(left_out: str) -> None:
    assert golden(**{left_out: False}) != golden()


def test_a_row_is_counted_against_the_factors_on_its_own_relation() -> None:
    def asked(*, per_relation: bool) -> list[set[int]]:
        index = NodeIndex(per_relation=per_relation)
        index.register(23, ("r", "a", "<", 5), ("s", "b", ">", 1))
        index.register(24, ("r", "a", "<", 5))
        return [index.wanted("r", {"a": 4}), index.wanted("s", {"b": 2})]

    assert asked(per_relation=True) == [{23, 24}, {23, 24}]
    assert asked(per_relation=False) != asked(
        per_relation=True
    )  # the text's count loses the half-satisfied join


def test_queries_over_different_relations_meet_in_the_node_of_a_factor_they_share() -> None:
    index = NodeIndex()
    for number, others in enumerate([[], [("s", "b", ">", 1)], [("s", "c", "=", 2), ("u", "d", "<", 9)]]):
        index.register(number, ("r", "a", "<", 5), *others)
    assert index.wanted("r", {"a": 4}) == {0, 1, 2}
    assert index.visited == 1  # one node for the three, whatever else they read
    assert index.counted == 3


def test_dropping_a_query_empties_nodes_and_trees() -> None:
    index = NodeIndex()
    index.register(1, ("r", "a", "<", 5))
    index.register(2, ("r", "a", "<", 5), ("r", "b", "=", 1))
    index.drop(1)
    assert index.trees["r", "a"].arrays[5]["<"] == [2]
    index.drop(2)
    assert index.trees == {}
