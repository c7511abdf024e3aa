"""Calls of aggregate functions: `AggregateCall` with its argument, FILTER and parameters; the names and kinds of all
aggregate functions, and the types of their results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from fractions import Fraction
from typing import Final
from typing import Literal as Choice

from headrace.algebra.expressions.expression import Expression
from headrace.dataclass import dataclass
from headrace.errors import UserError, did_you_mean
from headrace.schema import BIGINT, DOUBLE, INT, STRING, Type, decimal
from headrace.time import Duration


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """`function(argument)` over the rows of a group for which `condition` is true.

    `argument` is None for COUNT(*). NULL arguments do not count. `distinct` keeps one row per distinct argument.
    `share` (0 to 1) is the percentile, or the share of rows from which on a value is a heavy hitter; `most` is the number of
    most frequent values.
    """

    function: str
    argument: Expression | None
    type: Type
    distinct: bool = False
    condition: Expression | None = None
    within: Fraction | None = None
    """The error allowed to an approximate aggregate, as a fraction (of what, see `approximation`); None for exact aggregates."""
    part: Choice["value", "bound", "estimate", "error", "kept"] = "value"
    """`bound`: the maximum distance of the approximate value from the exact one. The others are of queries WITH SHEDDING,
    see `headrace.algebra.expressions.shedding_estimates`."""
    share: float | None = None
    most: int | None = None
    against: tuple[tuple[str, Expression], ...] = ()
    """Of aggregates that compare: comparisons of the argument with values of its group, which all must hold."""
    weight: Expression | None = None
    """Of those: the value that is added where the comparison holds; None counts rows. Of APPROX_PERCENTILE over samples: the number of
    rows that a row represents."""
    half_life: Duration | None = None
    """For an exponentially weighted mean: the time after which a row counts half."""
    doubled: int = field(default=0, repr=False)  # names of states are made of what is shown
    """How often the error of its synopsis is doubled, while memory is short; 0 in every query."""

    def __post_init__(self) -> None:
        if (self.half_life is not None) != (self.function == "ewma"):
            raise ValueError(f"{self.function} with half-life {self.half_life}")
        if self.half_life is not None and self.half_life <= 0:
            raise UserError("a half-life is longer than 0", remedy="Write for example INTERVAL 5 MINUTES.")
        if (self.share is not None) != (self.function in SHARES):
            raise ValueError(f"{self.function} with share {self.share}")
        if (self.most is not None) != (self.function in _WITH_MOST):
            raise ValueError(f"{self.function} of {self.most} values")
        if self.share is not None and not 0 <= self.share <= 1:
            raise UserError(f"{SHARES[self.function]} is between 0 and 1, not {self.share}")
        if self.function == "heavy_hitters" and not self.share:
            raise UserError("of HEAVY_HITTERS the least share is above 0")

    def over(self, change: Callable[[Expression], Expression]) -> AggregateCall:
        """The same aggregate of changed expressions."""
        argument, condition, weight = (
            None if part is None else change(part) for part in (self.argument, self.condition, self.weight)
        )
        return replace(self, argument=argument, condition=condition, weight=weight)


@dataclass(frozen=True, slots=True)
class NamedAggregate:
    """An aggregate and the internal name of its column."""

    name: str
    call: AggregateCall


ALIASES: Final = {
    "mean": "avg",
    "variance": "var_samp",
    "stddev": "stddev_samp",
    "std": "stddev_samp",
    "median": "percentile",
    "bool_and": "min",
    "every": "min",
    "bool_or": "max",
    "some": "max",
    "any": "max",
    "approx_count_distinct": "approx_distinct",
    "slope": "regr_slope",
    "intercept": "regr_intercept",
    "r2": "regr_r2",
    "first_value": "first",
    "last_value": "last",
    "any_value": "first",
}
"""Other names for the same function, as in Spark; MEDIAN is the percentile 0.5."""

APPROXIMATE: Final = ("approx_count", "approx_sum", "approx_distinct", "approx_percentile", "approx_top_k")
"""Aggregates that are approximate within a bound, and need little memory."""

SKETCHED: Final = ("approx_distinct", "approx_percentile", "approx_top_k")
"""Approximate aggregates that panes store as sketches."""

MAY_COMPARE: Final = ("count", "sum", "avg")
"""Exact aggregates that may be approximate where their FILTER compares rows with aggregates of the same group."""

BELONGS: Final = "WITHIN and BUCKETS belong to APPROX_…, L2_NORM, and COUNT, SUM and AVG whose FILTER compares with an aggregate"
"""The error message for these aggregates elsewhere."""

MOST_FREQUENT: Final = 1000
"""The maximum number of values of TOP_K."""

LEAST_WITHIN: Final = {"approx_distinct": Fraction(1, 400), "l2_norm": Fraction(1, 100)}
"""The minimum errors: a synopsis with a smaller one takes more memory than the exact values."""

_WITH_MOST: Final = ("top_k", "approx_top_k")

OF_CONDITIONS: Final = ("bool_and", "every", "bool_or", "some", "any")
"""Names whose argument is a condition: false is less than true."""

SHARES: Final = {
    "percentile": "a percentile",
    "approx_percentile": "a percentile",
    "heavy_hitters": "the least share of a heavy hitter",
}
"""Aggregates with a share, and its meaning."""

BY_VALUE: Final = ("percentile", "mode", "top_k", "heavy_hitters", "l1_norm", "l2_norm")
"""Holistic: computed from the distinct values and their counts."""

OF_PAIRS: Final = (
    "corr",
    "covar_pop",
    "covar_samp",
    "regr_slope",
    "regr_intercept",
    "regr_r2",
    "regr_sxx",
    "regr_syy",
    "regr_sxy",
)
"""Aggregates of two numbers per row, neither NULL: see `headrace.algebra.expressions.series.pair`."""

OF_SHAPE: Final = ("skewness", "kurtosis")
"""Aggregates of the third and fourth central moments."""

OF_BITS: Final = ("bit_and", "bit_or", "bit_xor")
"""Aggregates of the bits of whole numbers."""

BY_ORDER: Final = ("first", "last")
"""The value of the first or last row in the stream's order, NULL or not: see `headrace.algebra.expressions.series.placed`."""

BY_ANOTHER: Final = ("max_by", "min_by")
"""The value of the row in which another is greatest or least: see `headrace.algebra.expressions.series.chosen`."""

AGGREGATES: Final = (
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "var_samp",
    "var_pop",
    "stddev_samp",
    "stddev_pop",
    *BY_VALUE,
    *OF_PAIRS,
    *OF_SHAPE,
    *OF_BITS,
    *BY_ORDER,
    *BY_ANOTHER,
    "ewma",
)
"""Exact aggregates."""

DEFAULT_WITHIN: Final = Fraction(1, 100)
"""The defaults of WITHIN."""


def canonical(name: str) -> str | None:
    """The canonical name of an aggregate function, or None when `name` is not one."""
    folded = ALIASES.get(name.lower(), name.lower())
    return folded if folded in (*AGGREGATES, *APPROXIMATE) else None


OF_OTHERS: Final = ("count_if", "error_bound", "zscore", "regr_count", "regr_avgx", "regr_avgy")
"""Other names of aggregates, or names of expressions over them."""


def is_aggregate(name: str) -> bool:
    """True for every name of an aggregate."""
    return canonical(name) is not None or name.lower() in OF_OTHERS


def result_type(function: str, argument: Type | None) -> Type:
    """The type of an aggregate over arguments of a type, by Spark's rules; for pairs, placed and chosen values their structures.

    Raises `UserError` when the function does not accept that type.
    """
    if function in ("count", "approx_count", "approx_distinct", "l1_norm"):
        return BIGINT
    if function in _WITH_MOST:
        return STRING
    if function == "l2_norm":
        return DOUBLE
    if argument is None:
        raise UserError(f"{function.upper()} needs an argument", remedy="Only COUNT takes *.")
    if function in ("min", "max", "mode"):
        if not argument.is_orderable:
            raise UserError(f"{function.upper()} cannot compare values of type {argument}")
        return argument
    if function == "heavy_hitters":
        if not (argument.is_integer or argument.name in ("STRING", "VOID")):
            raise UserError(
                f"HEAVY_HITTERS takes whole numbers or strings, not {argument}",
                remedy="CAST the argument to STRING.",
            )
        return STRING
    if function in OF_BITS:
        if not (argument.is_integer or argument.name == "VOID"):
            raise UserError(
                f"{function.upper()} takes whole numbers, not {argument}",
                remedy="CAST the argument to BIGINT.",
            )
        return argument if argument.is_integer else INT
    if function in BY_ORDER:
        return argument.fields[0].type
    if function in BY_ANOTHER:
        return argument.fields[1].type
    if function in OF_PAIRS or function == "ewma":
        return DOUBLE
    if not (argument.is_numeric or argument.name == "VOID"):
        raise UserError(
            f"{function.upper()} needs a number, not {argument}",
            remedy="CAST the argument to a numeric type first.",
        )
    if function == "approx_sum":
        if not argument.is_integer:
            raise UserError(
                f"APPROX_SUM adds whole numbers from 0 on, not {argument}",
                remedy="CAST the argument to BIGINT, in a unit in which it is whole, or use SUM.",
            )
        return BIGINT
    if function == "sum":
        return _sum_type(argument)
    if function == "avg" and argument.name == "DECIMAL":
        return decimal(min(38, argument.precision + 4), min(38, argument.scale + 4))
    if function in AGGREGATES or function == "approx_percentile":
        return DOUBLE
    raise UserError(f"there is no aggregate '{function}'", remedy=did_you_mean(function, AGGREGATES))


def _sum_type(argument: Type) -> Type:
    if argument.is_integer:
        return BIGINT
    if argument.name == "DECIMAL":
        return decimal(min(38, argument.precision + 10), argument.scale)
    return DOUBLE
