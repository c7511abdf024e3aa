"""Measurements of operators are the same after they were pickled, and take a fraction of the bytes of tuples."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from headrace.observation import OperatorObservation
from headrace.runtime.messages.operator_observations import OperatorObservations

NUMBERS = st.one_of(st.just(0), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.booleans())
FIELDS = len(OperatorObservation._fields)


@given(st.dictionaries(st.text(max_size=3), st.tuples(*[NUMBERS] * FIELDS), max_size=6))
def test_each_number_has_its_value_and_type(given_: dict[str, tuple[float, ...]]) -> None:
    written = OperatorObservations({name: OperatorObservation._make(of) for name, of in given_.items()})
    read = pickle.loads(pickle.dumps(written, protocol=5))
    assert isinstance(read, OperatorObservations)
    assert list(read.items()) == list(written.items())
    for name, observation in read.items():
        assert isinstance(observation, OperatorObservation)
        assert [type(number) for number in observation] == [type(number) for number in written[name]]


def test_columns_of_one_number_are_written_once() -> None:
    many = {f"q{n}": OperatorObservation(rows_in=8_000_000, rows_kept=n * 7919) for n in range(1000)}
    names = sum(map(len, many))
    assert len(pickle.dumps(OperatorObservations(many), protocol=5)) < 3 * names + 8 * len(many) + 2000
    assert pickle.loads(pickle.dumps(OperatorObservations(many), protocol=5)) == many
