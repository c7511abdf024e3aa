"""Approximate aggregates: tests of whether a call is one, or is stored as a sketch, and the exact call that it
approximates.

An approximate answer is a value v and a bound b with |v - exact| <= b, so the exact answer with bound 0 is always correct.
For counts and sums b <= within * exact (rounded down); docs/semantics.md defines `within` for the others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from headrace.algebra.expressions.aggregates import APPROXIMATE, SKETCHED, AggregateCall
from headrace.algebra.expressions.expression import Call, Case, Cast, Expression, Literal
from headrace.schema import BIGINT, BOOLEAN, STRING

_PREFIX: Final = "approx_"
_NEGATIVE: Final = "a negative value under APPROX_SUM"


def is_approximate(call: AggregateCall) -> bool:
    """True for a call that may be answered within a bound."""
    return call.function in APPROXIMATE or call.within is not None


def is_sketched(call: AggregateCall) -> bool:
    """True for a call whose panes store a sketch, unless it is answered exactly."""
    return call.function in SKETCHED or (call.function == "l2_norm" and call.within is not None)


def exact(call: AggregateCall) -> AggregateCall:
    """The exact call of an approximate one; other calls unchanged."""
    if not is_approximate(call):
        return call
    if call.function == "approx_distinct":
        return replace(call, function="count", distinct=True, within=None, part="value")
    plain = call.function.removeprefix(_PREFIX)
    return replace(call, function=plain, argument=counted(call), within=None, part="value")


def counted(call: AggregateCall) -> Expression | None:
    """The argument of a call; under APPROX_SUM it fails on negative values, and their rows become failed rows."""
    if call.function != "approx_sum" or call.argument is None:
        return call.argument
    negative = Call("<", (call.argument, Literal(0, BIGINT)), BOOLEAN)
    failing = Cast(Literal(_NEGATIVE, STRING), BIGINT)
    return Case(((negative, failing),), call.argument, BIGINT)
