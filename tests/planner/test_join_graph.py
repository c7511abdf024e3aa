"""Groups of sources that one operator joins, by the keys that their conditions share."""

from __future__ import annotations

import pytest

from headrace.algebra.expressions.expression import Call, Column, Expression
from headrace.planner.joins.join_graph import Group, groups_of
from headrace.schema import BIGINT, BOOLEAN


def equal(one: str, other: str) -> Expression:
    return Call("=", (Column(one, BIGINT), Column(other, BIGINT)), BOOLEAN)


def grouped(streams: str, *factors: tuple[str, str], binary: bool = False) -> list[Group]:
    columns = [frozenset(f"{stream}.{column}" for column in "klm") for stream in streams]
    return groups_of(columns, [equal(*factor) for factor in factors], binary=binary)


def in_words(groups: list[Group]) -> list[str]:
    """Each group as `0.k 1.k`, with the keys of what is joined already in brackets."""
    words = []
    for group in groups:
        inner = [] if group.inner_keys is None else [f"[{_keys(group.inner_keys)}]"]
        words.append(
            " ".join(
                [
                    *inner,
                    *(
                        f"{source}:{_keys(keys)}"
                        for source, keys in zip(group.sources, group.keys, strict=True)
                    ),
                ]
            )
        )
    return words


@pytest.mark.parametrize(
    ("factors", "sizes", "expected"),
    [
        (
            [("a.k", "b.k"), ("a.l", "c.l"), ("a.m", "d.m")],
            (9, 5, 3, 1),
            ["0:a.m 3:d.m", "[a.l] 2:c.l", "[a.k] 1:b.k"],
        ),
        (
            [("a.k", "b.k"), ("a.l", "c.l"), ("a.m", "d.m")],
            (9, 5, 5, 5),
            ["0:a.k 1:b.k", "[a.l] 2:c.l", "[a.m] 3:d.m"],
        ),
        (
            [("a.k", "b.k"), ("b.l", "c.l"), ("b.l", "d.l")],
            (1, 1, 9, 9),
            ["1:b.l 2:c.l 3:d.l", "[b.k] 0:a.k"],
        ),
        (
            [("a.k", "b.k"), ("c.l", "d.l"), ("b.m", "c.m")],
            (9, 2, 2, 3),
            ["1:b.m 2:c.m", "[c.l] 3:d.l", "[b.k] 0:a.k"],
        ),
    ],
)
def test_of_sets_of_equal_size_the_one_with_fewest_rows_is_joined_first(
    factors: list[tuple[str, str]], sizes: tuple[int, ...], expected: list[str]
) -> None:
    columns = [frozenset(f"{stream}.{column}" for column in "klm") for stream in "abcd"]
    groups = groups_of(columns, [equal(*factor) for factor in factors], binary=False, sizes=sizes)
    assert in_words(groups) == expected


def _keys(keys: tuple[Expression, ...]) -> str:
    return "+".join(key.name for key in keys if isinstance(key, Column))


@pytest.mark.parametrize(
    ("streams", "factors", "expected"),
    [
        ("ab", [("a.k", "b.k")], ["0:a.k 1:b.k"]),
        ("abc", [("a.k", "b.k"), ("b.k", "c.k")], ["0:a.k 1:b.k 2:c.k"]),
        (
            "abcde",
            [("e.k", "d.k"), ("a.k", "b.k"), ("c.k", "d.k"), ("b.k", "e.k")],
            ["0:a.k 1:b.k 2:c.k 3:d.k 4:e.k"],
        ),
        ("ab", [("a.k", "b.k"), ("a.l", "b.l")], ["0:a.k+a.l 1:b.k+b.l"]),
        ("abc", [("a.k", "b.k"), ("b.l", "c.l")], ["0:a.k 1:b.k", "[b.l] 2:c.l"]),
        ("abcd", [("a.k", "b.k"), ("b.l", "c.l"), ("b.l", "d.l")], ["1:b.l 2:c.l 3:d.l", "[b.k] 0:a.k"]),
        (
            "abcd",
            [("a.k", "b.k"), ("b.l", "c.l"), ("d.m", "a.m")],
            ["0:a.k 1:b.k", "[b.l] 2:c.l", "[a.m] 3:d.m"],
        ),
        ("abc", [("a.k", "b.k")], ["0:a.k 1:b.k", "[] 2:"]),
        ("ab", [], ["0: 1:"]),
        ("abc", [("a.k", "b.k"), ("a.l", "b.k"), ("b.k", "c.k")], ["0:a.k 1:b.k 2:c.k"]),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_the_largest_set_with_one_key_is_joined_first(
    streams: str, factors: list[tuple[str, str]], expected: list[str]
) -> None:
    assert in_words(grouped(streams, *factors)) == expected


def test_relations_that_change_are_joined_two_at_a_time() -> None:
    groups = grouped("abc", ("a.k", "b.k"), ("b.k", "c.k"), binary=True)
    assert in_words(groups) == ["0:a.k 1:b.k", "[b.k] 2:c.k"]
