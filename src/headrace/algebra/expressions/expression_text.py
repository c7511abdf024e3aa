"""The text of an expression, close to SQL, as EXPLAIN shows it."""

from __future__ import annotations

from headrace.algebra.expressions.expression import Call, Case, Cast, Column, Expression, Literal


def show(expression: Expression) -> str:
    """An expression as text, close to SQL."""
    match expression:
        case Column(name=name):
            return name
        case Literal(value=value):
            return "NULL" if value is None else repr(value) if isinstance(value, str) else str(value)
        case Cast(argument=argument, type=kind):
            return f"CAST({show(argument)} AS {kind})"
        case Case(branches=branches, otherwise=otherwise):
            whens = " ".join(f"WHEN {show(when)} THEN {show(then)}" for when, then in branches)
            return f"CASE {whens} ELSE {show(otherwise)} END"
        case Call(function=function, arguments=arguments):
            parts = [show(argument) for argument in arguments]
            if function.isidentifier() and function not in ("and", "or", "div"):
                return f"{function}({', '.join(parts)})"
            return f"({f' {function.upper()} '.join(parts)})"
