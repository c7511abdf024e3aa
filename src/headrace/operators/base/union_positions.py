"""Several streams read as one: how does a row say which of them it came from?

By its position: the highest bits are the stream's number, so that order is (event time, which stream, position in it),
whatever epoch each row came in.
"""

from __future__ import annotations

from typing import Final

from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import Ints

_SHIFT: Final = 58
_NUMBERS: Final = 15


def placed(position: Ints, number: int) -> Ints:
    """Positions in a stream as positions among several, of which it is number `member`."""
    return position | (number << _SHIFT)


def input_number(batch: Batch) -> int:
    """Which of several streams the rows of a batch come from; a batch is of one stream."""
    return int(batch.position[0] >> _SHIFT) & _NUMBERS if batch.rows else 0
