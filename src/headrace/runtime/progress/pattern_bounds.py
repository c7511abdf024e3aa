"""How far is each row's group, by promises that are patterns? No row of it is below that instant any more.

A promise holds for a row's group where every column that it tests is at hand and matches; a promise about a column that is
not at hand says nothing of the groups (Li 2008, section 8.1, as repaired: it is dropped, not widened).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.expressions.punctuation_patterns import OneOf, Pattern, Plain, Test, pattern_named
from headrace.operators.base.group_codes import Ints, flat
from headrace.time import BEGINNING, Instant


def bounds_of(columns: Mapping[str, pa.Array], rows: int, promises: Mapping[str, Instant]) -> Ints:
    """For each of `rows` rows with these columns the greatest instant promised for its group; BEGINNING where there is none."""
    found = np.full(rows, BEGINNING, np.int64)
    lists: dict[str, dict[Plain, Instant]] = {}
    for text, at in promises.items():
        pattern = pattern_named(text)
        if any(name not in columns for name in pattern.columns):
            continue
        test = pattern.tests[0][1] if len(pattern.tests) == 1 else None
        if isinstance(test, OneOf):
            known = lists.setdefault(pattern.columns[0], {})
            for value in test.values:
                known[value] = max(at, known.get(value, BEGINNING))
        else:
            np.maximum(found, np.where(matching(pattern, columns, rows), at, BEGINNING), out=found)
    for name, known in lists.items():
        np.maximum(found, _looked_up(columns[name], known), out=found)
    return found


def matching(pattern: Pattern, columns: Mapping[str, pa.Array], rows: int) -> np.ndarray:
    """Which rows match; all columns that it tests are at hand."""
    found = np.ones(rows, np.bool_)
    for name, test in pattern.tests:
        found &= _holds(test, _comparable(columns[name]))
    return found


def _looked_up(column: pa.Array, known: Mapping[Plain, Instant]) -> Ints:
    """Constants and lists of one column, all of them at once."""
    values = _comparable(column)
    place = pc.fill_null(pc.index_in(values, _values(tuple(known), values.type)), -1).to_numpy()
    bounds: Ints = np.array([*known.values(), BEGINNING], np.int64)
    return np.asarray(bounds[place])


def _holds(test: Test, values: pa.Array) -> np.ndarray:
    if isinstance(test, OneOf):
        return np.asarray(pc.is_in(values, _values(test.values, values.type)))
    held = np.ones(len(values), np.bool_)
    if test.low is not None:
        least = pc.greater if test.above else pc.greater_equal
        held &= _truth(least(values, _values((test.low,), values.type)[0]))
    if test.high is not None:
        most = pc.less if test.below else pc.less_equal
        held &= _truth(most(values, _values((test.high,), values.type)[0]))
    return np.asarray(held & ~np.asarray(pc.is_null(values)))


def _truth(mask: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(mask, False))


def _comparable(column: pa.Array) -> pa.Array:
    """Whole numbers in their widest type, so that any constant is one."""
    values = flat(column)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.int64()) if pa.types.is_integer(values.type) else values


def _values(values: Sequence[Plain], kind: pa.DataType) -> pa.Array:
    told: list[Any] = list(values)
    if pa.types.is_date(kind):
        told = [None if value is None else date.fromisoformat(value) for value in told]
    return pa.array(told, kind)
