"""Several values as one: equal, in order, and the same in the reference."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.language.binder.expressions.expression_binder import bind_expression
from headrace.operators import scalar
from headrace.operators.base.group_codes import group
from headrace.operators.base.sort_ranks import sort_rank
from headrace.reference.scalar import evaluate
from headrace.schema import BIGINT, STRING, Field, Schema

KIND = pa.struct([("n", pa.int64()), ("t", pa.string())])
structs = st.none() | st.fixed_dictionaries(
    {"n": st.none() | st.integers(-2, 2), "t": st.none() | st.sampled_from(["", "a", "b"])}
)


def identity(value: dict[str, object] | None) -> tuple[object, ...] | None:
    return None if value is None else (value["n"], value["t"])


@given(st.lists(structs, max_size=30))
def test_structs_group_where_all_their_fields_are_equal(values):
    groups = group([pa.array(values, KIND)], len(values))
    assert groups.count == len({identity(value) for value in values})
    assert [groups.keys[0][int(code)].as_py() for code in groups.codes] == values


@given(st.lists(structs, max_size=30), st.booleans(), st.booleans())
def test_structs_stand_by_their_fields_from_left_to_right(values, descending, nulls_first):
    ranks = sort_rank(pa.array(values, KIND), descending, nulls_first)

    def place(value):
        number, text = identity(value)
        return number is not None, number or 0, text is not None, text or ""

    present = sorted((value for value in values if value is not None), key=place, reverse=descending)
    missing = [None] * values.count(None)
    expected = [*missing, *present] if nulls_first else [*present, *missing]
    assert [values[row] for row in np.argsort(ranks, kind="stable")] == expected


@given(st.lists(st.tuples(st.none() | st.integers(-2, 2), st.none() | st.text(max_size=2)), min_size=1))
def test_a_struct_is_what_the_reference_says(rows):
    schema = Schema((Field("n", BIGINT), Field("t", STRING)))
    asked = bind_expression("struct(n, t, n * 2, named_struct('in', t, 'one', 1))", schema)
    columns = {name: pa.array([row[at] for row in rows], kind) for at, (name, kind) in enumerate(
        (("n", pa.int64()), ("t", pa.string()))
    )}  # fmt: skip
    values = scalar.evaluate(asked, columns, len(rows)).values.to_pylist()
    assert values == [evaluate(asked, dict(zip(("n", "t"), row, strict=True))) for row in rows]


def test_a_whole_window_is_the_struct_of_its_bounds() -> None:
    start = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    rows = [{"at": start + dt.timedelta(seconds=second)} for second in (10, 70, 80)]
    text = "SELECT window, window.end AS e, COUNT(*) AS n FROM s GROUP BY window(at, '1 minute')"
    minutes = [start + dt.timedelta(minutes=minute) for minute in range(3)]
    assert hr.test(text, s=rows) == [
        {"window": {"start": minutes[0], "end": minutes[1]}, "e": minutes[1], "n": 1},
        {"window": {"start": minutes[1], "end": minutes[2]}, "e": minutes[2], "n": 2},
    ]
