"""Positions of rows in a union of streams: the number of the input and the position in it, as one integer.

The highest bits are the number of the input, so that the order is (event time, input, position in it), whatever epoch
each row arrived in.
"""

from __future__ import annotations

from typing import Final

from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import Ints

_SHIFT: Final = 58
_NUMBERS: Final = 15


def placed(position: Ints, number: int) -> Ints:
    """Positions in an input of a union as positions in the union; `number` is that of the input."""
    return position | (number << _SHIFT)


def input_number(batch: Batch) -> int:
    """The input from which the rows of a batch come; a batch has one input."""
    return int(batch.position[0] >> _SHIFT) & _NUMBERS if batch.rows else 0
