"""`value IN (constants)` for long lists: by a hash table of the list, or by a search among its sorted hashes.

`pyarrow.compute.is_in` makes a hash table of the list for every batch: the fastest way for a list that is not much longer than the
batch. For longer ones a search among sorted hashes, made once for a list, costs the same for each row, however long the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.base.group_codes import Ints, hashes, normalise
from headrace.operators.scalar.values.column_result import Compute, Frame, Result
from headrace.operators.scalar.values.datum import Bools, column, valid
from headrace.operators.scalar.values.row_errors import Errors, both

_LONGER: Final = 8
"""A list is searched by hash from this many constants for each row of a batch on."""


def among_constants(candidates: Result) -> Compute:
    """Whether the first argument is one of the candidates, which are in order and of its type.

    A candidate that fails is an error of the rows that need it: not NULL, and unequal to all candidates before it.
    """
    listed, failure = candidates.value, candidates.errors
    if failure is not None:
        first = int(np.argmax(failure.mask))
        listed, reason = listed[:first], failure.reasons[first]
    holds, has_null = Lookup(listed.drop_null()).holds, listed.null_count > 0

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


class Lookup:
    """A search among constants that are not NULL."""

    def __init__(self, constants: pa.Array) -> None:
        self._constants = normalise(constants).unique()
        kind = self._constants.type
        self._may_collide = not pa.types.is_primitive(kind) or pa.types.is_decimal(kind)

    def holds(self, values: pa.Array) -> Bools:
        """Whether each value is one of the constants; NULL is none of them."""
        if len(self._constants) > _LONGER * len(values) and self._by_hash is not None:
            return self._searched(values, *self._by_hash)
        return _flags(pc.is_in(normalise(values), value_set=self._constants, skip_nulls=True))

    @cached_property
    def _by_hash(self) -> tuple[Ints, pa.Array] | None:
        """Hashes in order, and their constants; None if two constants have one hash (unlikely below a billion of them)."""
        keys = hashes(self._constants)
        order = np.argsort(keys)
        keys = keys[order]
        return None if (keys[1:] == keys[:-1]).any() else (keys, self._constants.take(pa.array(order)))

    def _searched(self, values: pa.Array, keys: Ints, constants: pa.Array) -> Bools:
        wanted, is_value = hashes(values), valid(values)
        at = np.searchsorted(keys, wanted)
        at[at == len(keys)] = 0
        is_listed: Bools = keys[at] == wanted
        if is_value is not None:
            is_listed &= is_value
        if self._may_collide:
            rows = np.flatnonzero(is_listed)
            is_listed[rows] = _flags(
                pc.equal(values.take(pa.array(rows)), constants.take(pa.array(at[rows])))
            )
        return is_listed


def _flags(values: pa.Array) -> Bools:
    flags: Bools = values.to_numpy(zero_copy_only=False)
    return flags
