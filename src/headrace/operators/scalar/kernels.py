"""Which kernel computes a function? One factory per canonical name, called once where an expression is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow.compute as pc

from headrace.operators.scalar import arithmetic, decimals, moments
from headrace.operators.scalar.comparison import compared, extreme, null_safe_equal
from headrace.operators.scalar.datum import Kernel
from headrace.schema import Type


@dataclass(frozen=True, slots=True)
class Site:
    """One call: function, types of its arguments, values of those that are constants (else None), type of the result."""

    function: str
    arguments: tuple[Type, ...]
    constants: tuple[Any, ...]
    result: Type


Factory: TypeAlias = Callable[[Site], Kernel]


def _additive(site: Site) -> Kernel:
    if site.result.name == "DECIMAL":
        return decimals.arithmetic(site.function, site.result)
    if not site.result.is_numeric or not all(kind.is_numeric for kind in site.arguments):
        return moments.arithmetic(site.function, site.arguments, site.result)
    return arithmetic.additive(site.function, site.result)


def _divided(site: Site) -> Kernel:
    if site.result.name == "DECIMAL":
        return decimals.arithmetic("/", site.result)
    return (
        arithmetic.quotient
        if site.result.is_fractional
        else moments.arithmetic("/", site.arguments, site.result)
    )


def _remainder(site: Site) -> Kernel:
    if site.result.name == "DECIMAL":
        return decimals.arithmetic(site.function, site.result)
    return (arithmetic.remainder if site.function == "%" else arithmetic.positive_remainder)(site.result)


def _whole_quotient(site: Site) -> Kernel:
    return decimals.whole_quotient if site.arguments[0].name == "DECIMAL" else arithmetic.whole_quotient


def _negated(site: Site) -> Kernel:
    if site.result.name == "DECIMAL":
        return decimals.changed(site.result, lambda values, scale: (-values, scale), "-")
    return arithmetic.negated(site.result)


def _absolute(site: Site) -> Kernel:
    if site.result.name == "DECIMAL":
        return decimals.changed(site.result, lambda values, scale: (abs(values), scale), "abs")
    return arithmetic.absolute(site.result)


def _same(function: Callable[..., Any]) -> Factory:
    return lambda _: lambda data: (function(*data), None)


_OPERATORS: Final[Mapping[str, Factory]] = {
    "+": _additive,
    "-": _additive,
    "*": _additive,
    "/": _divided,
    "%": _remainder,
    "pmod": _remainder,
    "div": _whole_quotient,
    "negate": _negated,
    "abs": _absolute,
    **{
        symbol: lambda site: compared(site.function, site.arguments[0])
        for symbol in ("=", "<>", "<", "<=", ">", ">=")
    },
    "<=>": lambda site: null_safe_equal(site.arguments[0]),
    "greatest": lambda site: extreme(">", site.result),
    "least": lambda site: extreme("<", site.result),
    "not": _same(pc.invert),
    "isnull": _same(pc.is_null),
    "isnotnull": _same(pc.is_valid),
}

KERNELS: Final[Mapping[str, Factory]] = {**_OPERATORS}
