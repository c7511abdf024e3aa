"""Which aggregates over pairs can be made of partial aggregates of the sides of their join, and the operator for them.

All conditions between sides must be equalities of keys, and each group key and aggregate must read one side, or be the count, the sum
or the mean of a product, or of a sum or difference of integers, with a term of each of two; windows slide together, each side with its
own range. Integers are summed as BIGINT: a side's sums are multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from headrace.algebra.expressions.aggregates import NamedAggregate
from headrace.algebra.expressions.expression import (
    Call,
    Cast,
    Column,
    Expression,
    Named,
    columns_of,
    conjuncts,
)
from headrace.algebra.windows.window import TimeSlide
from headrace.operators.aggregates.aggregate_calls import needs_values
from headrace.operators.aggregates.group_by import Grouped
from headrace.operators.base.group_codes import slot_of_name
from headrace.operators.joins.join_aggregate import AggregatedSide, JoinAggregate
from headrace.operators.joins.join_side import Side
from headrace.operators.joins.partial_products import can_repeat
from headrace.operators.joins.side_products import SideProduct, SideSum, aggregates_of, factor_name
from headrace.operators.joins.window_join import WindowJoin
from headrace.operators.output.output_stage import Finish
from headrace.operators.panes.adaptive_panes import ALWAYS_ROWS
from headrace.operators.panes.panes import Panes
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.planner.joins.join_graph import equalities
from headrace.schema import BIGINT, Type

_OF_TWO: Final = frozenset({"count", "sum", "avg"})
_COMBINED: Final[Mapping[str, type[SideProduct | SideSum]]] = {"*": SideProduct, "+": SideSum, "-": SideSum}
_SUMMED: Final = frozenset({"sum", "avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop"})


def of_sides(join: WindowJoin, grouped: Grouped) -> bool:
    """Whether these aggregates over the pairs of a join are made of those of its sides."""
    sides = join.spec.sides
    if join.grid is None or not sides[0].keys:
        return False
    keys = [side.keys for side in sides]
    factors = [] if join.spec.condition is None else list(conjuncts(join.spec.condition))
    if set(factors) - set(equalities(keys, factors)):
        return False
    if any(needs_values(item.call) for item in grouped.aggregates):
        return False
    if not all(map(can_repeat, grouped.layouts[0].partial_columns)):
        return False
    read = [columns_of(key.expression) for key in grouped.keys]
    read += [_read_by(item) for item in grouped.aggregates if _of_two(sides, item) is None]
    return all(_owner(sides, columns) is not None for columns in read)


def combined_by(join: WindowJoin, aggregates: Sequence[NamedAggregate]) -> frozenset[type]:
    """How these aggregates combine terms of two sides: as `SideProduct`, as `SideSum`."""
    combined = (_of_two(join.spec.sides, item) for item in aggregates)
    return frozenset(type(argument) for argument in combined if argument is not None)


def join_aggregate(
    id_: str, query: str, join: WindowJoin, grouped: Grouped, finish: Finish, window_alias: str
) -> JoinAggregate:
    """The operator for aggregates that are `of_sides`."""
    assert join.grid is not None
    sides, slide, anchor = join.spec.sides, join.grid.slide, join.grid.anchor
    grouped = Grouped(grouped.keys, tuple(map(_summed_exactly, grouped.aggregates)))
    named_keys: list[list[Named]] = [
        [Named(f"__join{index}", key) for index, key in enumerate(side.keys)] for side in sides
    ]
    places = tuple(_place(sides, named_keys, key) for key in grouped.keys)
    joined = len(sides[0].keys)
    by_key = {key for _, key in places if key < joined} == set(range(joined))
    alone = all(len(keys) == joined for keys in named_keys)
    slot = None if by_key and alone and not finish.needs_whole_window else slot_of_name(id_)
    of_two = (_of_two(sides, item) for item in grouped.aggregates)
    side_products = tuple(dict.fromkeys(product for product in of_two if product is not None))
    aggregated: list[AggregatedSide] = []
    for number, (side, keys) in enumerate(zip(sides, named_keys, strict=True)):
        assert side.lookback is not None
        factors = _factors(side_products, number)
        items = [
            *(item for item in grouped.aggregates if _aggregates(sides, item) == number),
            *(item for factor in factors for item in aggregates_of(factor)),
        ]
        panes = PaneAggregate(
            id=id_,
            query=query,
            stream=join.spec.stream,
            panes=Panes.of(TimeSlide(side.lookback, slide, anchor)),
            range=side.lookback,
            window_alias="",
            keys=tuple(keys),
            aggregates=tuple(items),
            finish=Finish(()),
            steps=side.filters,
            single_slot=slot,
            has_own_panes=True,
            row_layout_limit=ALWAYS_ROWS if factors else None,
        )
        aggregated.append(AggregatedSide(side.inputs, panes, side.name))
    layouts = [side.panes.layouts[0] for side in aggregated]
    return JoinAggregate(
        id=id_,
        query=query,
        stream=join.spec.stream,
        sides=tuple(aggregated),
        keys=joined,
        grouped=grouped,
        places=places,
        side_of=tuple(
            next((number for number, layout in enumerate(layouts) if column in layout.partial_columns), None)
            for column in grouped.layouts[0].partial_columns
        ),
        finish=finish,
        window_alias=window_alias,
        once=by_key and alone,
        join_signature=join.spec.signature,
        products=side_products,
    )


def _of_two(sides: Sequence[Side], item: NamedAggregate) -> SideProduct | SideSum | None:
    """What an aggregate is of, if its terms are of two sides: products of doubles, products and sums of integers; not of decimals."""
    call = item.call
    argument, combined = call.argument, call.argument
    if call.function not in _OF_TWO or call.distinct or call.condition is not None or argument is None:
        return None
    if isinstance(combined, Cast) and not combined.safe and argument.type == BIGINT:
        combined = combined.argument
    if not isinstance(combined, Call) or len(combined.arguments) != 2:
        return None
    left, right = combined.arguments
    owners = [_owner(sides, columns) if (columns := columns_of(part)) else None for part in (left, right)]
    first, second = owners
    if (
        first is None
        or second is None
        or first == second
        or not _is_summed(combined, exactly=argument is combined)
    ):
        return None
    factors = _widened(left), _widened(right)
    replaced = [
        _narrowed(Column(factor_name(side, factor), factor.type), part.type)
        for side, part, factor in zip((first, second), (left, right), factors, strict=True)
    ]
    of_factors = Call(combined.function, tuple(replaced), combined.type)
    whole = of_factors if argument is combined else Cast(of_factors, argument.type)
    return _COMBINED[combined.function](argument, (first, second), factors, whole)


def _is_summed(combined: Call, *, exactly: bool) -> bool:
    """Whether sums of such a combination follow from those of its terms; `exactly`: it is not widened."""
    if combined.function not in _COMBINED:
        return False
    of_integers = all(part.type.is_integer for part in (combined, *combined.arguments))
    return of_integers or (exactly and combined.function == "*" and combined.type.name == "DOUBLE")


def _widened(factor: Expression) -> Expression:
    """A factor, of BIGINT where it is a shorter integer."""
    return Cast(factor, BIGINT) if factor.type.is_integer and factor.type != BIGINT else factor


def _narrowed(column: Column, kind: Type) -> Expression:
    return column if column.type == kind else Cast(column, kind)


def _factors(side_products: Sequence[SideProduct | SideSum], side: int) -> list[Expression]:
    """The factors of one side, each once."""
    factors = (
        factor
        for product in side_products
        for number, factor in zip(product.sides, product.factors, strict=True)
        if number == side
    )
    return list(dict.fromkeys(factors))


def _owner(sides: Sequence[Side], columns: frozenset[str]) -> int | None:
    """The side that has all of these columns; the first one for none."""
    return next((number for number, side in enumerate(sides) if columns <= side.reads), None)


def _aggregates(sides: Sequence[Side], item: NamedAggregate) -> int | None:
    """The side that makes an aggregate by itself."""
    return None if _of_two(sides, item) is not None else _owner(sides, _read_by(item))


def _read_by(item: NamedAggregate) -> frozenset[str]:
    parts = (item.call.argument, item.call.condition)
    return frozenset().union(*(columns_of(part) for part in parts if part is not None))


def _place(sides: Sequence[Side], named_keys: list[list[Named]], key: Named) -> tuple[int, int]:
    """The side and the place of a group key among its keys, to which it is added where it is none of the join's."""
    side = _owner(sides, columns_of(key.expression))
    assert side is not None
    expressions: list[Expression] = [known.expression for known in named_keys[side]]
    if key.expression not in expressions:
        named_keys[side].append(Named(f"__group{len(expressions)}", key.expression))
        expressions.append(key.expression)
    return side, expressions.index(key.expression)


def _summed_exactly(item: NamedAggregate) -> NamedAggregate:
    """The aggregate, of BIGINT where it sums shorter integers."""
    argument = item.call.argument
    if item.call.function not in _SUMMED or argument is None or not argument.type.is_integer:
        return item
    if argument.type == BIGINT:
        return item
    return replace(item, call=replace(item.call, argument=Cast(argument, BIGINT)))
