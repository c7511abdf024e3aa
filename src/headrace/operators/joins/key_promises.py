"""Punctuation of single keys in a join: the instant below which no other side gets a row of a stored row's key.

A promise for some keys (Li 2008, section 4.2; Tucker, Maier, Sheard, Fegaras 2003: "this auction is closed") passes rows that
the punctuation of the whole stream has not passed yet. So rows of these keys are not stored, or removed at the next merge of runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Column, Expression
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints, flat
from headrace.operators.base.operator import Advance
from headrace.operators.joins.join_side import Side
from headrace.operators.time_windows.group_punctuation import BoundsOf
from headrace.schema import Field, Schema
from headrace.time import FOREVER, Instant


@dataclass(frozen=True, slots=True)
class KeyPromises:
    """What one input of a union has promised for groups of its rows: their punctuation by the promises' names.

    `names`: for each column of the input its name in the union. `required`: columns without which no promise can be looked up.
    """

    names: Mapping[str, str]
    punctuations: Mapping[str, Instant]
    bounds_of: BoundsOf
    required: tuple[str, ...] = ()

    def bounds(self, keys: Mapping[str, pa.Array], rows: int) -> Ints | None:
        """For rows of another side, with these key columns by their names in the union, the instant below which the input
        gets none of their key; None where no promise is about keys.
        """
        columns = {column: keys[name] for column, name in self.names.items() if name in keys}
        if not columns or not columns.keys() >= set(self.required):
            return None
        return self.bounds_of(columns, rows, self.punctuations)


def storing_keys(sides: Sequence[Side]) -> tuple[Side, ...]:
    """The sides, each of which stores its key columns, so that promises can be looked up for stored rows."""
    return tuple(
        replace(side, stored=Schema((*side.stored, *_keys_not_stored(side)))) if side.keys else side
        for side in sides
    )


def _keys_not_stored(side: Side) -> Iterator[Field]:
    known = set(side.stored.names)
    for key in side.keys:
        if isinstance(key, Column) and key.name not in known:
            known.add(key.name)
            yield Field(key.name, key.type)


def least_bound(rows: pa.Table, index: int, sides: Sequence[Side], advance: Advance) -> Ints | Instant:
    """The instant below which no other side gets a row that a row of side `index` could be joined with; of each row, if
    promises for keys differ.
    """
    others = [other for other in range(len(sides)) if other != index]
    if not advance.key_promises:
        return min(sides[other].bound(advance) for other in others)
    least = np.full(rows.num_rows, FOREVER)
    for other in others:
        keys = _shared_keys(rows, sides[index], sides[other])
        for number in sides[other].inputs:
            bound, promises = advance.input_punctuations[number], advance.key_promises.get(number)
            promised = None if promises is None else promises.bounds(keys, rows.num_rows)
            np.minimum(least, bound if promised is None else np.maximum(bound, promised), out=least)
    return least


def _shared_keys(rows: pa.Table, side: Side, other: Side) -> dict[str, pa.Array]:
    """Key columns of another side as stored rows of this one have them: equal keys are equal values of comparable types."""
    return {
        theirs.name: flat(rows.column(mine.name))
        for mine, theirs in zip(side.keys, other.keys, strict=True)
        if isinstance(mine, Column)
        and isinstance(theirs, Column)
        and mine.name in rows.column_names
        and _named_alike(mine, theirs)
    }


def _named_alike(one: Expression, other: Expression) -> bool:
    """Whether equal values of both have equal names: not where 0.0 equals -0.0."""
    if one.type.is_integer:
        return other.type.is_integer
    return one.type == other.type and not one.type.is_fractional
