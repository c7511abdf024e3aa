"""Exact variances of integers and decimals, from sums of squares as limbs of 32 bits; and the arithmetic of such limbs.

Deviations about a mean are rounded, and differently for each cut into panes, tasks and epochs. Of integers the count n,
the sum S and the sum of squares Q are exact, and with them n·Q - S², which is n times the sum of squared deviations:
there is no cancellation of rounded numbers.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from headrace.operators.base.group_codes import Ints
from headrace.operators.partials.partial import Cells, Column

_LIMB: Final = 32
_LOW: Final = np.uint64(0xFFFFFFFF)
_FITS: Final = 2.0**62
"""Below this n·Q, and so S² too, fits a signed word of 64 bits."""


def squared(sizes: Column) -> Column:
    """The squares, as (rows, 2·w) limbs, of non-negative numbers of (rows, w) limbs, the lowest first."""
    limbs = sizes.astype(np.uint64)
    rows, width = limbs.shape
    wide = np.zeros((rows, 2 * width), np.uint64)
    for left in range(width):
        for right in range(width):
            product = limbs[:, left] * limbs[:, right]
            wide[:, left + right] += product & _LOW
            wide[:, left + right + 1] += product >> np.uint64(_LIMB)
    return np.stack(carried(tuple(wide[:, limb].view(np.int64) for limb in range(2 * width))), axis=1)


def carried(limbs: Cells) -> list[Column]:
    """Summed limbs as those of one number: all but the highest, which has the sign, from 0 to 2^32 - 1."""
    parts: list[Column] = []
    carry: Column = np.zeros(len(limbs[0]), np.int64)
    for limb in limbs:
        full = limb.astype(np.int64) + carry
        carry = full >> _LIMB
        parts.append(full & 0xFFFFFFFF)
    parts[-1] = full
    return parts


def exact_variance(function: str, number: Ints, total: Cells, squares: Cells, scale: int) -> pa.Array:
    """VAR_SAMP, VAR_POP, STDDEV_SAMP or STDDEV_POP of each cell, of numbers that were summed as `value · 10^scale`.

    (n·Q - S²) / (n·(n - 1)), or over n² for a population. Equal sums give equal doubles: the arithmetic that is used
    depends only on them.
    """
    summed, squared_sum = carried(total), carried(squares)
    less = 0 if function.endswith("pop") else 1
    pairs = number.astype(np.float64) * (number - less)
    with np.errstate(all="ignore"):
        spread = _in_words(number, summed, squared_sum) / pairs / 10.0 ** (2 * scale)
    sizes = sum(part.astype(np.float64) * 2.0 ** (_LIMB * limb) for limb, part in enumerate(squared_sum))
    wide = np.flatnonzero((number > less) & (number * sizes >= _FITS))
    chosen = zip(number[wide].tolist(), _wholes(summed, wide), _wholes(squared_sum, wide), strict=True)
    spread[wide] = [(n * q - s * s) / (n * (n - less) * 10 ** (2 * scale)) for n, s, q in chosen]
    values = np.sqrt(spread) if function.startswith("stddev") else spread
    return pa.array(values, mask=number <= less)


def _in_words(number: Ints, total: list[Column], squares: list[Column]) -> Column:
    """n·Q - S² in 64 bits: wrong if it does not fit."""
    sums = _word(total)
    result: Column = number * _word(squares) - sums * sums
    return result


def _word(parts: list[Column]) -> Column:
    return parts[0] if len(parts) == 1 else parts[0] | (parts[1] << _LIMB)


def _wholes(parts: list[Column], cells: Ints) -> list[int]:
    """The numbers of some cells, in Python's integers of any length."""
    words = zip(*(part[cells].tolist() for part in parts), strict=True)
    return [sum(limb << (_LIMB * index) for index, limb in enumerate(word)) for word in words]
