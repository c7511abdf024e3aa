"""The text of an expression, close to SQL, as EXPLAIN shows it."""

from __future__ import annotations

from typing import Final

from headrace.algebra.expressions.expression import (
    Call,
    Case,
    Cast,
    Column,
    Constants,
    Expression,
    Literal,
    constants_in,
    one_by_one,
)

_MOST_SHOWN: Final = 10
"""Constants of a long IN that are shown."""


def show(expression: Expression) -> str:
    """An expression as text, close to SQL; long lists of constants are cut."""
    match expression:
        case Column(name=name):
            return name
        case Literal(value=value):
            return "NULL" if value is None else repr(value) if isinstance(value, str) else str(value)
        case Constants():
            return _shown_list(expression, expression)
        case Cast(argument=argument, type=kind):
            return f"CAST({show(argument)} AS {kind})"
        case Case(branches=branches, otherwise=otherwise):
            whens = " ".join(f"WHEN {show(when)} THEN {show(then)}" for when, then in branches)
            return f"CASE {whens} ELSE {show(otherwise)} END"
        case Call(function=function, arguments=arguments):
            parts = [show(argument) for argument in arguments]
            if function == "in" and (listed := constants_in(arguments[1])) is not None:
                parts[1] = _shown_list(listed, arguments[1])
            if function.isidentifier() and function not in ("and", "or", "div"):
                return f"{function}({', '.join(parts)})"
            if function == "~":
                return f"~{parts[0]}"
            return f"({f' {function.upper()} '.join(parts)})"


def _shown_list(listed: Constants, candidates: Expression) -> str:
    """The first candidates, without a cast of all, and the number of the others."""
    if isinstance(candidates, Cast) and candidates.argument is listed:
        candidates = listed
    first = ", ".join(show(one) for one in one_by_one(candidates, _MOST_SHOWN))
    others = len(listed) - _MOST_SHOWN
    return f"{first}, … {others:,} more" if others > 0 else first
