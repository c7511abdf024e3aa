"""`value IN (constants)` for long lists: a search among sorted hashes of the constants, made once per list.

A batch then costs a search per row, however long the list; `pyarrow.compute.is_in` makes a hash table of the list per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.base.group_codes import hashes, normalise
from headrace.operators.scalar.values.column_result import Compute, Frame, Result
from headrace.operators.scalar.values.datum import Bools, column, valid
from headrace.operators.scalar.values.row_errors import Errors, both

Lookup: TypeAlias = Callable[[pa.Array], Bools]
"""From values to whether each is one of the constants; NULL is none of them."""


def among_constants(candidates: Result) -> Compute:
    """Whether the first argument is one of the candidates, which are in order and of its type.

    A candidate that fails is an error of the rows that need it: not NULL, and unequal to all candidates before it.
    """
    listed, failure = candidates.value, candidates.errors
    if failure is not None:
        first = int(np.argmax(failure.mask))
        listed, reason = listed[:first], failure.reasons[first]
    holds, has_null = lookup(listed.drop_null()), listed.null_count > 0

    def compute(frame: Frame, results: Sequence[Result]) -> Result:
        values, errors = column(results[0].value, frame.rows), results[0].errors
        is_held, is_value = holds(values), valid(values)
        is_unknown = ~is_held if has_null else None if is_value is None else ~is_value
        if failure is not None:
            failed = ~is_held if is_value is None else ~is_held & is_value
            everywhere = Errors.everywhere(frame.rows, reason)
            errors = both(errors, everywhere and everywhere.within(failed))
            is_unknown = ~is_held
        return Result(pa.array(is_held, mask=is_unknown), errors)

    return compute


def lookup(constants: pa.Array) -> Lookup:
    """A search among constants that are not NULL."""
    distinct = normalise(constants).unique()
    kind = distinct.type
    may_collide = not (pa.types.is_primitive(kind) or pa.types.is_null(kind)) or pa.types.is_decimal(kind)
    keys = hashes(distinct)
    order = np.argsort(keys)
    keys, distinct = keys[order], distinct.take(pa.array(order))
    if (
        not len(keys) or (keys[1:] == keys[:-1]).any()
    ):  # two constants of one hash: unlikely below a billion constants
        return lambda values: _flags(pc.is_in(normalise(values), value_set=distinct, skip_nulls=True))

    def searched(values: pa.Array) -> Bools:
        wanted, is_value = hashes(values), valid(values)
        at = np.searchsorted(keys, wanted)
        at[at == len(keys)] = 0
        found: Bools = keys[at] == wanted
        if is_value is not None:
            found &= is_value
        if may_collide:
            rows = np.flatnonzero(found)
            found[rows] = _flags(pc.equal(values.take(pa.array(rows)), distinct.take(pa.array(at[rows]))))
        return found

    return searched


def _flags(values: pa.Array) -> Bools:
    flags: Bools = values.to_numpy(zero_copy_only=False)
    return flags
