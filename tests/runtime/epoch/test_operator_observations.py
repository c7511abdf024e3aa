"""Measurements of many operators, by column, are those of their records: added, pickled, and searched."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.observation import OperatorObservation
from headrace.runtime.messages import operator_observations
from headrace.runtime.messages.operator_observations import OperatorObservations, added

WHOLE = st.one_of(st.just(0), st.just(7), st.integers(-(2**40), 2**40))
FLOATS = frozenset({"missing", "variance"})
SHARES = st.one_of(st.just(0.0), st.integers(-(2**20), 2**20).map(lambda n: n / 8))
RECORDS = st.builds(
    OperatorObservation._make,
    st.tuples(*(SHARES if measure in FLOATS else WHOLE for measure in OperatorObservation._fields)),
)
PARTS = st.lists(st.dictionaries(st.sampled_from("abcdefgh"), RECORDS, max_size=8), max_size=4)


def by_hand(parts: list[dict[str, OperatorObservation]]) -> dict[str, OperatorObservation]:
    sums: dict[str, OperatorObservation] = {}
    for part in parts:
        for name, seen in part.items():
            sums[name] = seen if name not in sums else sums[name].plus(seen)
    return sums


def types(records: Mapping[str, OperatorObservation]) -> dict[str, list[type]]:
    return {name: [type(number) for number in seen] for name, seen in records.items()}


@given(parts=PARTS, many=st.sampled_from((1, 3, 100)))
def test_they_are_added_as_their_records_are(parts: list[dict[str, OperatorObservation]], many: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator_observations, "MANY", many)
        total, expected = added(parts), by_hand(parts)
        assert dict(total.items()) == expected
        assert types(total) == types(expected)
        for measure in ("groups", "joinable", "missing"):
            assert total.having(measure) == {n for n, seen in expected.items() if getattr(seen, measure)}


@given(
    parts=PARTS, many=st.sampled_from((1, 3, 100)), names=st.lists(st.sampled_from("abcdefghij"), unique=True)
)
def test_some_of_them_are_those_that_are_here(
    parts: list[dict[str, OperatorObservation]], many: int, names: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator_observations, "MANY", many)
        some, expected = added(parts).some(iter(names)), by_hand(parts)
        assert dict(some.items()) == {name: expected[name] for name in names if name in expected}
        assert list(some) == [name for name in names if name in expected]
        assert types(some.plus(added(parts))) == types(expected)


@given(records=st.dictionaries(st.text(max_size=3), RECORDS, max_size=6), many=st.sampled_from((1, 100)))
def test_they_are_the_same_after_they_were_pickled(
    records: dict[str, OperatorObservation], many: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator_observations, "MANY", many)
        read = pickle.loads(pickle.dumps(OperatorObservations.of(records), protocol=5))
        assert isinstance(read, OperatorObservations)
        assert list(read.items()) == list(records.items())
        assert types(read) == types(records)
        assert all(isinstance(seen, OperatorObservation) for seen in read.values())
        assert OperatorObservations.of(read) is read


def test_columns_of_one_number_are_pickled_once() -> None:
    many = {f"q{n}": OperatorObservation(rows_in=8_000_000, rows_kept=n * 7919) for n in range(1000)}
    names = sum(map(len, many))
    pickled = pickle.dumps(OperatorObservations.of(many), protocol=5)
    assert len(pickled) < 3 * names + 8 * len(many) + 2000
    assert dict(pickle.loads(pickled)) == many
