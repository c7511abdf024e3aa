"""The digest of a pushed batch: of its values alone, and of all of them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.sources.content_digest import content_digest

VALUES = {
    pa.int64(): st.integers(-5, 5),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=3),
    pa.binary(): st.binary(max_size=3),
    pa.decimal128(9, 2): st.decimals(-9, 9, places=2),
    pa.timestamp("us", tz="UTC"): st.datetimes(timezones=st.just(dt.UTC)),
    pa.list_(pa.int32()): st.lists(st.none() | st.integers(0, 3), max_size=3),
    pa.struct([("a", pa.string()), ("b", pa.int8())]): st.fixed_dictionaries(
        {"a": st.none() | st.text(max_size=2), "b": st.none() | st.integers(0, 3)}
    ),
}


@given(data=st.data(), kind=st.sampled_from(list(VALUES)))
def test_equal_rows_have_equal_digests_however_they_are_laid_out_and_others_have_others(
    data: st.DataObject, kind: pa.DataType
) -> None:
    rows = st.lists(st.none() | VALUES[kind], max_size=12)
    left, right = data.draw(rows), data.draw(rows)
    whole = pa.table({"c": pa.array(left, kind)})
    digest = content_digest(whole)
    padded = pa.concat_arrays([pa.array(right, kind), pa.array(left, kind), pa.array(right, kind)])
    assert content_digest(pa.table({"c": padded.slice(len(right), len(left))})) == digest
    cut = data.draw(st.integers(0, len(left)))
    parts = pa.chunked_array([pa.array(left[:cut], kind), pa.array(left[cut:], kind)])
    assert content_digest(pa.table({"c": parts})) == digest
    other = pa.table({"c": pa.array(right, kind)})
    assert (content_digest(other) == digest) == (repr(other.to_pylist()) == repr(whole.to_pylist()))


def test_what_is_under_a_null_does_not_count() -> None:
    values, valid = pa.array([1, 2, 3], pa.int64()), pa.array([True, False, True])
    hidden = pa.Array.from_buffers(
        pa.int64(), 3, [pc.if_else(valid, 1, None).buffers()[0], values.buffers()[1]]
    )
    assert hidden.to_pylist() == [1, None, 3]
    assert content_digest(pa.table({"c": hidden})) == content_digest(pa.table({"c": [1, None, 3]}))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (["ab", ""], ["a", "b"]),
        ([[1], []], [[], [1]]),
        ([None, 0], [0, None]),
        ([Decimal("1.0")], [Decimal("-1.0")]),
    ],
)
def test_what_is_easily_taken_for_the_same_is_not(left: list, right: list) -> None:
    assert content_digest(pa.table({"c": left})) != content_digest(pa.table({"c": right}))


def test_columns_and_rows_are_not_mixed_up() -> None:
    one = pa.table({"a": ["x", "y"], "b": ["z", ""]})
    other = pa.table({"a": ["x", "yz"], "b": ["", ""]})
    assert content_digest(one) != content_digest(other)
    assert content_digest(one.slice(0, 0)) != content_digest(one.slice(0, 1))
