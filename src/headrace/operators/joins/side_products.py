"""Sums over combinations of rows of a product, a sum or a difference of two terms, each of one side: from the sums of the terms;
and the combinations themselves where that would not be the same.

Over all combinations of the rows of a key, the sum of a·b is the sum of a times the sum of b, and that of a+b the sum of a times the
number of b plus the sum of b times the number of a; times the numbers of rows of the other sides. SQL has an error where one value
does not fit its type, or a result that is no number where a factor is none; both follow from single combinations. So a side
stores with each sum the least and the greatest term, and the rows themselves: where these bounds do not rule such a
combination out (`alike`), the key's combinations are made (`evaluated`).
Source: factorised aggregates (Olteanu, Schleich 2016).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Call, Expression, walk
from headrace.dataclass import dataclass
from headrace.operators.aggregates.aggregate_calls import Answer, lift_each
from headrace.operators.aggregates.cell_table import KEY, Layout, WindowCells, gather, select
from headrace.operators.base.group_codes import Ints, flat, group, ints, picked
from headrace.operators.base.operator import Advance, Sections
from headrace.operators.joins.partial_products import combinations, repeated
from headrace.operators.panes.adaptive_panes import SPARSE_OPEN, SPARSE_SEALED
from headrace.operators.panes.pane_keys import between, block_key
from headrace.operators.panes.panes import HIGHEST, LOWEST, Panes
from headrace.operators.partials.encoding import (
    PartialColumn,
    count_partial,
    extreme_partial,
    rows_partial,
    sum_partial,
)
from headrace.operators.partials.integer_moments import carried
from headrace.operators.partials.partial import Cells, Count
from headrace.operators.partials.partial import Column as Values
from headrace.operators.scalar import Errors, Evaluation
from headrace.time import BEGINNING

_BITS: Final = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
_ROUNDED: Final = 1 - 1e-9
"""Bounds are compared as doubles: so much below a limit is below it."""
_MOST_SUMMED: Final = {True: 2.0**90, False: 1e300}
"""A sum of products that is smaller has room in two limbs, the higher one of 64 bits; or in a double."""
_WORD: Final = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class OfTwoSides:
    """The argument of an aggregate that is made of a term of each of two sides, perhaps widened to BIGINT.

    `factors` are the terms as the sides aggregate them: integers as BIGINT. `of_factors` is the argument, of columns with them.
    """

    argument: Expression
    sides: tuple[int, int]
    factors: tuple[Expression, Expression]
    of_factors: Expression

    def _greatest(self, left: Values, right: Values) -> Values:
        """A bound of the argument's absolute value, by those of its terms."""
        raise NotImplementedError

    def _sum(self, sums: Sequence[Cells], counts: Sequence[Ints]) -> Cells:
        """The sum of the argument over combinations of two sides' rows, by the sums of its terms and the numbers that are not NULL."""
        raise NotImplementedError

    @property
    def _call(self) -> Call:
        return next(node for node in walk(self.argument) if isinstance(node, Call))

    @property
    def _is_integer(self) -> bool:
        return self.argument.type.is_integer

    @property
    def _limit(self) -> float:
        """No value below it fails, or is infinite."""
        return 2.0 ** _BITS[self._call.type.name] if self._is_integer else _MOST_SUMMED[False]

    def alike(self, sides: Sequence[WindowCells], cell_numbers: Sequence[Ints]) -> npt.NDArray[np.bool_]:
        """Whether the sum over each combination of cells surely follows from the sums of the terms."""
        greatest, totals = list[Values](), np.ones(len(cell_numbers[0]))
        with np.errstate(all="ignore"):
            for side, factor in zip(self.sides, self.factors, strict=True):
                of_side, number = _bounds(sides[side].answer, factor)
                greatest.append(of_side[cell_numbers[side]])
                totals = totals * number[cell_numbers[side]]
            sizes = self._greatest(*greatest)
            totals = totals * sizes
            for rows in _others(sides, cell_numbers, self.sides):
                totals = totals * rows
            smaller: npt.NDArray[np.bool_] = (sizes < self._limit * _ROUNDED) & (
                totals < _MOST_SUMMED[self._is_integer]
            )
        return smaller

    def cells(
        self, partial_column: PartialColumn, sides: Sequence[WindowCells], cell_numbers: Sequence[Ints]
    ) -> Cells:
        """The count or the sum of the argument over each combination of cells, where they are `alike`."""
        counts, sums = list[Ints](), list[Cells]()
        for side, factor in zip(self.sides, self.factors, strict=True):
            cells = sides[side].answer.cells
            counts.append(cells[count_partial(factor)][0][cell_numbers[side]])
            sums.append(_of_cells(cells[sum_partial(factor)], cell_numbers[side]))
        others = _others(sides, cell_numbers, self.sides)
        if isinstance(partial_column.partial, Count):
            return repeated(partial_column, (counts[0] * counts[1],), others)
        return repeated(partial_column, self._sum(sums, counts), others)


@dataclass(frozen=True, slots=True)
class SideProduct(OfTwoSides):
    """A product of integers, or of doubles."""

    def _greatest(self, left: Values, right: Values) -> Values:
        bound: Values = left * right
        return bound

    def _sum(self, sums: Sequence[Cells], counts: Sequence[Ints]) -> Cells:  # noqa: ARG002
        if self._is_integer:
            return product_of_limbs(*sums)
        return (sums[0][0] * sums[1][0] + 0.0,)  # no negative zero, as in a sum


@dataclass(frozen=True, slots=True)
class SideSum(OfTwoSides):
    """A sum or a difference of integers: of doubles, what cancels in each pair would not cancel in sums."""

    def _greatest(self, left: Values, right: Values) -> Values:
        bound: Values = left + right
        return bound

    def _sum(self, sums: Sequence[Cells], counts: Sequence[Ints]) -> Cells:
        sign = -1 if self._call.function == "-" else 1
        left, right = (
            carried(tuple(limb * number for limb in carried(limbs)))
            for limbs, number in zip(sums, counts[::-1], strict=True)
        )
        return tuple(carried(tuple(one + sign * other for one, other in zip(left, right, strict=True))))


def aggregates_of(factor: Expression) -> tuple[NamedAggregate, ...]:
    """What a side aggregates of a factor."""
    calls = (AggregateCall(function, factor, factor.type) for function in ("sum", "min", "max"))
    return tuple(NamedAggregate(f"__{call.function}", call) for call in calls)


def product_of_limbs(left: Cells, right: Cells) -> Cells:
    """The products, as a limb of 32 bits and one of 64, of integers that were summed as two limbs."""
    (left_low, left_high), (right_low, right_high) = (carried(limbs) for limbs in (left, right))
    with np.errstate(all="ignore"):  # modulo 2^64, which the result has room in
        low = left_low.view(np.uint64) * right_low.view(np.uint64)
        high = (low >> np.uint64(32)).view(np.int64) + left_low * right_high + left_high * right_low
        high += (left_high * right_high) << 32
    return (low & _WORD).view(np.int64), high


def _of_cells(cells: Cells, numbers: Ints) -> Cells:
    return tuple(part[numbers] for part in cells)


def _others(sides: Sequence[WindowCells], cell_numbers: Sequence[Ints], but: Sequence[int]) -> list[Ints]:
    """The numbers of rows of the other sides' cells."""
    return [
        side.answer.cells[rows_partial()][0][numbers]
        for index, (side, numbers) in enumerate(zip(sides, cell_numbers, strict=True))
        if index not in but
    ]


def _bounds(answer: Answer, factor: Expression) -> tuple[Values, Values]:
    """The greatest absolute value of a factor in each cell, 0 where all are NULL; and how many are not."""
    number = answer.cells[count_partial(factor)][0]
    least, most = (answer.cells[extreme_partial(factor, largest)][0] for largest in (False, True))
    greatest = np.maximum(np.abs(least.astype(np.float64)), np.abs(most.astype(np.float64)))
    return np.where(number > 0, greatest, 0.0), number


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of one side as cells of one row each, once for each window that they are in; its factors on them, and the first
    window that each is in.
    """

    cells: WindowCells
    factors: Mapping[Expression, pa.Array]
    first: Ints

    def of(self, rows: Ints) -> StoredRows:
        """Some of them."""
        factors = {factor: picked(values, rows) for factor, values in self.factors.items()}
        return StoredRows(some_cells(self.cells, rows), factors, self.first[rows])


def some_cells(cells: WindowCells, numbers: Ints) -> WindowCells:
    """Some of the cells."""
    keys = tuple(picked(flat(key), numbers) for key in cells.keys)
    return WindowCells(cells.windows[numbers], keys, select(cells.answer, numbers))


def stored_rows(
    layout: Layout,
    panes: Panes,
    runs: Sequence[Sections],
    deltas: Sequence[Sections],
    advance: Advance,
    windows: Ints,
) -> StoredRows:
    """The rows of some windows that close now, of a side that stores its rows."""
    before = LOWEST if advance.emitted_to == BEGINNING else panes.of_instant(advance.emitted_to)
    opened = [part[SPARSE_OPEN] for part in (*runs, *deltas) if SPARSE_OPEN in part]
    tables = between(opened, block_key(0, before), block_key(0, HIGHEST))
    tables += [run[SPARSE_SEALED] for run in runs if SPARSE_SEALED in run]
    parts, sizes = list[pa.Table](), list[int]()
    for window in windows.tolist():
        first = panes.first(window)
        assert first is not None, "windows of landmarks are not joined"
        held = between(tables, block_key(0, first), block_key(0, panes.stop(window)))
        parts += held
        sizes.append(sum(table.num_rows for table in held))
    rows = pa.concat_tables(parts) if parts else layout.row_schema().empty_table()
    keys = tuple(flat(rows.column(name)) for name in layout.key_names)
    cells = WindowCells(np.repeat(windows, sizes), keys, gather(layout, [rows]).answer)
    first_windows = (ints(rows, KEY) - block_key(0, 0)) // panes.per_slide + 1
    return StoredRows(cells, layout.arguments_of(rows), first_windows)


def keys_of(cells: WindowCells, chosen: Ints, keys: int) -> WindowCells:
    """The windows and the first `keys` keys of some cells, each once; without partials."""
    columns = [pa.array(cells.windows[chosen]), *(picked(flat(key), chosen) for key in cells.keys[:keys])]
    distinct = group(columns, len(chosen))
    return WindowCells(distinct.keys[0].to_numpy(), distinct.keys[1:], Answer({}))


def with_keys(cells: WindowCells, keys: WindowCells) -> Ints:
    """The cells that have one of some windows and keys."""
    return combinations([cells, keys], len(keys.keys))[0]


def evaluated(
    products: Sequence[OfTwoSides], sides: Sequence[StoredRows | None], rows: Sequence[Ints]
) -> tuple[Mapping[Expression, pa.Array], Errors | None]:
    """The products on combinations of rows, and on which of these one fails."""
    columns: dict[str, pa.Array] = {}
    for product in products:
        for side, factor in zip(product.sides, product.factors, strict=True):
            stored = sides[side]
            assert stored is not None, "a side with a factor stores its rows"
            columns[factor_name(side, factor)] = picked(stored.factors[factor], rows[side])
    evaluation = Evaluation(columns, len(rows[0]))
    values = {product.argument: evaluation.values(product.of_factors) for product in products}
    return values, evaluation.errors


def in_first_window(
    cells: Sequence[WindowCells], sides: Sequence[StoredRows | None], rows: Sequence[Ints]
) -> npt.NDArray[np.bool_]:
    """Whether the window of each combination of rows is the first that holds it, by the sides that store rows."""
    firsts = [
        stored.first[of_side] for stored, of_side in zip(sides, rows, strict=True) if stored is not None
    ]
    is_first: npt.NDArray[np.bool_] = np.max(firsts, axis=0) == cells[0].windows[rows[0]]
    return is_first


def factor_name(side: int, factor: Expression) -> str:
    """The column of a factor."""
    return f"{side} {factor!r}"


def summed_rows(partial_column: PartialColumn, values: pa.Array, times: Sequence[Ints]) -> Cells:
    """The count or the sum of a product of each combination of rows, of which there are the product of `times`."""
    assert partial_column.expression is not None
    one = lift_each((partial_column,), {partial_column.expression: values}, len(values))
    return repeated(partial_column, one.cells[partial_column], times)
