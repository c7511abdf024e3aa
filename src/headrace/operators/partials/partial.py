"""The algebra of partial aggregates (lift rows into cells, combine cells): its interface, and the partials for counts,
sums, extremes and bits.

A *partial* is a fixed set of numpy columns, one element per cell, with an identity and an associative, commutative
combination, so that panes can be merged in any grouping (the bounded aggregates of Li 2008, section 6.3). An aggregate of
SQL is a small function of shared partials: AVG is SUM over COUNT, and all of one argument share one count.
Counts and sums of integers, which are exact (and wrap around), can also be subtracted: they are *differential*. Nothing
else can: subtracting doubles gives wrong answers, and NaN would never leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeAlias
from typing import Literal as Choice

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints

Column: TypeAlias = npt.NDArray[Any]
Cells: TypeAlias = tuple[Column, ...]
"""The columns of one partial; all of one shape."""
_LONG_ROW: Final = 512
"""Numbers a row from which a loop over rows is faster than one over columns."""


@dataclass(frozen=True, slots=True)
class Argument:
    """The argument of an aggregate on a batch: raw values, and which rows count (not NULL, condition true)."""

    values: Column
    valid: npt.NDArray[np.bool_] | None
    weights: Column | None = None
    """The weight of each row, for partials with weights; None: all weights are equal."""


class Partial(Protocol):
    """One kind of partial.

    Contract: `combine` is associative and commutative with `identity` neutral; `reduce` equals folding `combine` over
    the cells of a code. The property tests assert it for every class: those here, of deviations from means
    (`central_moments`), and of rows' times (`time_weighted`).
    """

    @property
    def width(self) -> int:
        """Number of columns."""
        ...

    @property
    def subtracts(self) -> bool:
        """True when `part` can be taken out of a combination exactly by subtracting its columns."""
        ...

    def lift(self, argument: Argument, cells: Ints, count: int) -> Cells:
        """Aggregate rows into `count` cells by `cells[row]`."""
        ...

    def identity(self, shape: tuple[int, ...]) -> Cells:
        """Cells of no rows."""
        ...

    def combine(self, left: Cells, right: Cells) -> Cells:
        """Cell by cell."""
        ...

    def reduce(self, cells: Cells, codes: Ints, count: int) -> Cells:
        """Combine all cells of equal code."""
        ...

    def accumulate(self, cells: Cells) -> Cells:
        """Prefix combinations along axis 0."""
        ...


@dataclass(frozen=True, slots=True)
class Count:
    """How many rows count."""

    width: int = 1
    subtracts: bool = True

    def lift(self, argument: Argument, cells: Ints, count: int) -> Cells:
        """Rows per cell."""
        chosen = cells if argument.valid is None else cells[argument.valid]
        return (np.bincount(chosen, minlength=count).astype(np.int64, copy=False),)

    def identity(self, shape: tuple[int, ...]) -> Cells:
        """Zero."""
        return (np.zeros(shape, np.int64),)

    def combine(self, left: Cells, right: Cells) -> Cells:
        """Sum."""
        return (left[0] + right[0],)

    def reduce(self, cells: Cells, codes: Ints, count: int) -> Cells:
        """Sum per code."""
        return _add_at(cells, codes, count)

    def accumulate(self, cells: Cells) -> Cells:
        """Running sums."""
        return (running(np.add, cells[0]),)


@dataclass(frozen=True, slots=True)
class Sum:
    """Sums of columns that are safe to add: doubles, or integers as limbs of 32 bits (`limbs`)."""

    width: int = 1
    integer: bool = False

    @property
    def subtracts(self) -> bool:
        """Integers only."""
        return self.integer

    def lift(self, argument: Argument, cells: Ints, count: int) -> Cells:
        """Sums per cell; integer arguments arrive as (rows, width) limbs."""
        values, chosen = argument.values, cells
        if argument.valid is not None:
            values, chosen = values[argument.valid], cells[argument.valid]
        if not self.integer:
            return (sums(chosen, values, count),)
        parts = [values] if self.width == 1 else [values[:, limb] for limb in range(self.width)]
        return tuple(_scatter(np.add, part, chosen, np.zeros(count, np.int64)) for part in parts)

    def identity(self, shape: tuple[int, ...]) -> Cells:
        """Zero."""
        return tuple(np.zeros(shape, np.int64 if self.integer else np.float64) for _ in range(self.width))

    def combine(self, left: Cells, right: Cells) -> Cells:
        """Sum."""
        return tuple(a + b for a, b in zip(left, right, strict=True))

    def reduce(self, cells: Cells, codes: Ints, count: int) -> Cells:
        """Sum per code."""
        return _add_at(cells, codes, count)

    def accumulate(self, cells: Cells) -> Cells:
        """Running sums."""
        return tuple(running(np.add, part) for part in cells)


@dataclass(frozen=True, slots=True)
class Extreme:
    """MIN or MAX of integers or doubles. Spark's order: NaN is above every number.

    An empty cell holds the identity; a count of the same argument marks it as empty.
    """

    largest: bool
    integer: bool
    width: int = 1
    subtracts: bool = False

    @property
    def ufunc(self) -> np.ufunc:
        """The function that picks the more extreme of two."""
        if self.largest or self.integer:
            return np.maximum if self.largest else np.minimum
        return np.fmin  # NaN is the largest: it is the minimum only when all are NaN

    @property
    def _neutral(self) -> float | int:
        if self.integer:
            return int(np.iinfo(np.int64).min if self.largest else np.iinfo(np.int64).max)
        return -np.inf if self.largest else np.nan

    def lift(self, argument: Argument, cells: Ints, count: int) -> Cells:
        """The extreme of each cell."""
        values, chosen = argument.values, cells
        if argument.valid is not None:
            values, chosen = values[argument.valid], cells[argument.valid]
        return (_scatter(self.ufunc, values, chosen, self.identity((count,))[0]),)

    def identity(self, shape: tuple[int, ...]) -> Cells:
        """Beyond every value."""
        return (np.full(shape, self._neutral, np.int64 if self.integer else np.float64),)

    def combine(self, left: Cells, right: Cells) -> Cells:
        """The more extreme."""
        return (self.ufunc(left[0], right[0]),)

    def reduce(self, cells: Cells, codes: Ints, count: int) -> Cells:
        """The extreme per code."""
        return (_scatter(self.ufunc, cells[0], codes, self.identity((count,))[0]),)

    def accumulate(self, cells: Cells) -> Cells:
        """Running extremes."""
        return (running(self.ufunc, cells[0]),)


_OF_BITS: Final = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@dataclass(frozen=True, slots=True)
class Bitwise:
    """The bits that all numbers have, that one has, or that an odd number of them have.

    An empty cell holds the identity; a count of the same argument marks it as empty.
    """

    which: Choice["and", "or", "xor"]
    width: int = 1
    subtracts: bool = False

    @property
    def ufunc(self) -> np.ufunc:
        """The function of two numbers."""
        return _OF_BITS[self.which]

    def lift(self, argument: Argument, cells: Ints, count: int) -> Cells:
        """The bits of each cell."""
        values, chosen = argument.values, cells
        if argument.valid is not None:
            values, chosen = values[argument.valid], cells[argument.valid]
        return self.reduce((values,), chosen, count)

    def identity(self, shape: tuple[int, ...]) -> Cells:
        """All bits for AND, else none."""
        return (np.full(shape, -1 if self.which == "and" else 0, np.int64),)

    def combine(self, left: Cells, right: Cells) -> Cells:
        """Cell by cell."""
        return (self.ufunc(left[0], right[0]),)

    def reduce(self, cells: Cells, codes: Ints, count: int) -> Cells:
        """The bits per code."""
        (out,) = self.identity((count,))
        self.ufunc.at(out, codes, cells[0])
        return (out,)

    def accumulate(self, cells: Cells) -> Cells:
        """Running bits."""
        return (running(self.ufunc, cells[0]),)


def running(ufunc: np.ufunc, part: Column, out: Column | None = None) -> Column:
    """Prefix combinations along axis 0, in that order; in `out`, which may be `part`, or new.

    numpy's own process one column after the other: for long rows that takes up to eight times as long as row after row.
    """
    if part.ndim < 2 or part[:1].size < _LONG_ROW:
        result: Column = ufunc.accumulate(part, axis=0, out=out)
        return result
    if out is None:
        out = np.empty(part.shape, part.dtype)
    out[:1] = part[:1]
    for row in range(1, len(part)):
        ufunc(out[row - 1], part[row], out=out[row])
    return out


def _scatter(ufunc: np.ufunc, values: Column, cells: Ints, out: Column) -> Column:
    ufunc.at(out, cells, values)
    return out


def sums(codes: Ints, values: Column, count: int) -> Column:
    """Sums of doubles per code; of nothing, zeros that are doubles too (`bincount` would give integers)."""
    return np.bincount(codes, weights=values, minlength=count).astype(np.float64, copy=False)


def reduce_onto(partial: Partial, cells: Cells, codes: Ints, onto: Cells) -> Cells:
    """`onto`, one cell per code, combined with all cells of the code; its arrays are overwritten where any order is exact."""
    if not (isinstance(partial, Extreme) or (isinstance(partial, Count | Sum) and partial.subtracts)):
        return partial.combine(partial.reduce(cells, codes, len(onto[0])), onto)
    ufunc = partial.ufunc if isinstance(partial, Extreme) else np.add
    return tuple(_scatter(ufunc, part, codes, out) for part, out in zip(cells, onto, strict=True))


def _add_at(cells: Cells, codes: Ints, count: int) -> Cells:
    return tuple(_scatter(np.add, part, codes, np.zeros(count, part.dtype)) for part in cells)


def concatenate(parts: Sequence[Cells], partial: Partial) -> Cells:
    """Cells of several tables one after the other."""
    if not parts:
        return partial.identity((0,))
    return tuple(np.concatenate([part[column] for part in parts]) for column in range(partial.width))
