"""The punctuation of each row's group where promises are patterns of column values: the latest instant promised for it; and
which rows match a pattern.

A promise applies to a row's group if all columns that it tests are available and match; a promise about other columns does
not apply to the groups (Li 2008, section 8.1, as repaired: it is dropped, not widened).
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
    """For each of `rows` rows the maximum instant promised for its group; BEGINNING where there is none."""
    bounds = np.full(rows, BEGINNING, np.int64)
    lists: dict[str, dict[Plain, Instant]] = {}
    for text, at in promises.items():
        pattern = pattern_named(text)
        if any(name not in columns for name in pattern.columns):
            continue
        test = pattern.tests[0][1] if len(pattern.tests) == 1 else None
        if isinstance(test, OneOf):
            instants = lists.setdefault(pattern.columns[0], {})
            for value in test.values:
                instants[value] = max(at, instants.get(value, BEGINNING))
        else:
            np.maximum(bounds, np.where(matching(pattern, columns, rows), at, BEGINNING), out=bounds)
    for name, instants in lists.items():
        np.maximum(bounds, _looked_up(columns[name], instants), out=bounds)
    return bounds


def matching(pattern: Pattern, columns: Mapping[str, pa.Array], rows: int) -> np.ndarray:
    """Which rows match; all columns that the pattern tests are available."""
    matches = np.ones(rows, np.bool_)
    for name, test in pattern.tests:
        matches &= _holds(test, _comparable(columns[name]))
    return matches


def _looked_up(column: pa.Array, promises: Mapping[Plain, Instant]) -> Ints:
    """The bounds of rows by constants and lists of one column, all of them at once."""
    values = _comparable(column)
    indices = pc.fill_null(pc.index_in(values, _values(tuple(promises), values.type)), -1).to_numpy()
    bounds: Ints = np.array([*promises.values(), BEGINNING], np.int64)
    return np.asarray(bounds[indices])


def _holds(test: Test, values: pa.Array) -> np.ndarray:
    if isinstance(test, OneOf):
        return np.asarray(pc.is_in(values, _values(test.values, values.type)))
    matches = np.ones(len(values), np.bool_)
    if test.low is not None:
        least = pc.greater if test.above else pc.greater_equal
        matches &= _truth(least(values, _values((test.low,), values.type)[0]))
    if test.high is not None:
        most = pc.less if test.below else pc.less_equal
        matches &= _truth(most(values, _values((test.high,), values.type)[0]))
    return np.asarray(matches & ~np.asarray(pc.is_null(values)))


def _truth(mask: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(mask, False))


def _comparable(column: pa.Array) -> pa.Array:
    """The values; integers as int64, the type of constants."""
    values = flat(column)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.int64()) if pa.types.is_integer(values.type) else values


def _values(values: Sequence[Plain], kind: pa.DataType) -> pa.Array:
    constants: list[Any] = list(values)
    if pa.types.is_date(kind):
        constants = [None if value is None else date.fromisoformat(value) for value in constants]
    return pa.array(constants, kind)
