"""The text of a bound expression, which is read back as the same expression.

Everything is in parentheses, columns are qualified and constants carry their type, so that nothing has to be inferred.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from typing import Final

from headrace.algebra.expressions.aggregates import MAY_COMPARE, AggregateCall
from headrace.algebra.expressions.expression import (
    Call,
    Case,
    Cast,
    Column,
    Constants,
    Expression,
    Literal,
    columns_of,
    one_by_one,
)
from headrace.algebra.expressions.series import AT, CHOSEN, PAIR, POSITION, STRUCTURES
from headrace.algebra.query import SemijoinColumn
from headrace.language.parser.literals import shown_instant
from headrace.language.parser.quoting import identifier, string
from headrace.schema import INTERVAL

_INFIX: Final = frozenset(
    {
        "+",
        "-",
        "*",
        "/",
        "%",
        "div",
        "=",
        "<=>",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "and",
        "or",
        "like",
        "ilike",
        "rlike",
        "&",
        "|",
        "^",
        "<<",
        ">>",
        ">>>",
    }
)
_SUFFIXES: Final = {"TINYINT": "Y", "SMALLINT": "S", "INT": "", "BIGINT": "L"}


def render_columns(alias: str, names: Iterable[str], bounds: Iterable[str], *, only: bool) -> dict[str, str]:
    """The columns of a source and of its window; `window.end` where it is the only one: it may have such a column too."""
    texts = {f"{alias}.{name}": f"{identifier(alias)}.{identifier(name)}" for name in (*bounds, *names)}
    if only and alias.lower() != "window":
        bare = {f"{alias}.{name}": name.replace("_", ".") for name in bounds if name != "window_id"}
        texts |= {name: text for name, text in bare.items() if name.split(".")[-1] not in set(names)}
    return texts


def render_membership(semijoin: SemijoinColumn, columns: Mapping[str, str]) -> str:
    """A subquery of WHERE."""
    source = f"{identifier(semijoin.right.name)} AS {identifier(semijoin.right.alias)}"
    where = "" if semijoin.condition is None else f" WHERE {render_expression(semijoin.condition, columns)}"
    if semijoin.test is None:
        return f"(EXISTS (SELECT 1 FROM {source}{where}))"
    value, member = (render_expression(side, columns) for side in semijoin.test.arguments)
    return f"({value} IN (SELECT {member} FROM {source}{where}))"


def render_expression(expression: Expression, columns: Mapping[str, str]) -> str:
    """The expression as text; `columns` has the text of each internal column name."""
    match expression:
        case Column():
            return columns[expression.name]
        case Literal():
            return literal(expression)
        case Constants():
            return ", ".join(map(_listed, expression.literals()))
        case Cast():
            word = "TRY_CAST" if expression.safe else "CAST"
            return f"{word}({render_expression(expression.argument, columns)} AS {expression.type})"
        case Case():
            return _case(expression, columns)
        case Call():
            return _call(expression, columns)


def render_aggregate(call: AggregateCall, columns: Mapping[str, str]) -> str:
    """An aggregate as text."""
    argument = "*" if call.argument is None else _argument(call.argument, columns)
    share = "" if call.share is None else f", {call.share!r}D"
    share += "" if call.most is None else f", {call.most}"
    if call.half_life is not None:
        share = f", {literal(Literal(call.half_life, INTERVAL))}"
    function = "regr_count" if _is_pair(call.argument) and call.function == "count" else call.function
    text = f"{function}({'DISTINCT ' if call.distinct else ''}{argument}{share})"
    if call.condition is not None:
        text += f" FILTER (WHERE {render_expression(call.condition, columns)})"
    if call.within is not None and call.function in MAY_COMPARE and (2 * call.within).numerator == 1:
        text += f" BUCKETS {1 / (2 * call.within)}"
    elif call.within is not None:
        percent = 100 * call.within
        text += f" WITHIN {Decimal(percent.numerator) / Decimal(percent.denominator):f} PERCENT"
    return f"error_bound({text})" if call.part == "bound" else text


def _is_pair(argument: Expression | None) -> bool:
    return isinstance(argument, Call) and argument.function == PAIR


def _argument(argument: Expression, columns: Mapping[str, str]) -> str:
    """The text between the parentheses: of a structure the parts except the row's own position."""
    if not (isinstance(argument, Call) and argument.function in STRUCTURES):
        return render_expression(argument, columns)
    if argument.function == CHOSEN:
        return ", ".join(render_expression(part, columns) for part in reversed(argument.arguments))
    first, *rest = argument.arguments
    read = frozenset().union(*(columns_of(part) for part in rest))
    if any(name.endswith((f".{AT}", f".{POSITION}")) for name in read):
        return render_expression(first, columns)
    return ", ".join(render_expression(part, columns) for part in argument.arguments)


def _case(case: Case, columns: Mapping[str, str]) -> str:
    parts = [
        f"WHEN {render_expression(when, columns)} THEN {render_expression(then, columns)}"
        for when, then in case.branches
    ]
    return f"CASE {' '.join(parts)} ELSE {render_expression(case.otherwise, columns)} END"


def _among(call: Call, columns: Mapping[str, str]) -> str:
    """IN. The cast of a whole list is left out: it is to the type of the value, so it is made again when the text is read."""
    value, *candidates = call.arguments
    if len(candidates) == 1:
        listed = candidates[0]
        if isinstance(listed, Cast) and not listed.safe and isinstance(listed.argument, Constants):
            listed = listed.argument
        candidates = [listed] if isinstance(listed, Constants) else list(one_by_one(listed))
    texts = ", ".join(render_expression(candidate, columns) for candidate in candidates)
    return f"({render_expression(value, columns)} IN ({texts}))"


def _listed(constant: Literal) -> str:
    """A constant as lists of constants have it: a DECIMAL without its type, which follows from the list."""
    value = constant.value
    return "NULL" if value is None else f"{value:f}BD" if isinstance(value, Decimal) else literal(constant)


def _call(call: Call, columns: Mapping[str, str]) -> str:
    if call.function == "in":
        return _among(call, columns)
    arguments = [render_expression(argument, columns) for argument in call.arguments]
    match call.function:
        case "not":
            return f"(NOT {arguments[0]})"
        case "isnull" | "isnotnull":
            return f"({arguments[0]} IS {'NOT ' if call.function == 'isnotnull' else ''}NULL)"
        case "negate":
            return f"negative({arguments[0]})"
        case "||":
            return f"concat({', '.join(arguments)})"
        case "like" | "ilike" if len(arguments) == 3:
            return f"({arguments[0]} {call.function.upper()} {arguments[1]} ESCAPE {arguments[2]})"
        case name if name in _INFIX:
            return "(" + f" {name.upper()} ".join(arguments) + ")"
        case name:
            return f"{name}({', '.join(arguments)})"


def literal(constant: Literal) -> str:
    """A constant as text of exactly its type."""
    value, kind = constant.value, constant.type
    if value is None:
        return "NULL" if kind.name == "VOID" else f"CAST(NULL AS {kind})"
    match kind.name:
        case "BOOLEAN":
            return "true" if value else "false"
        case "STRING":
            return string(str(value))
        case "DOUBLE" | "FLOAT":
            return f"{value!r}{kind.name[0]}"
        case "DECIMAL" if isinstance(value, Decimal):
            return f"CAST({value:f}BD AS {kind})"
        case "BINARY" if isinstance(value, bytes):
            return f"X'{value.hex()}'"
        case "DATE" if isinstance(value, date):
            return f"DATE '{value.isoformat()}'"
        case "TIMESTAMP" | "TIMESTAMP_NTZ" if isinstance(value, int):
            return f"{kind.name} '{shown_instant(value)}'"
        case "INTERVAL":
            return f"INTERVAL {value!r} MICROSECONDS"
        case _:
            return f"{value!r}{_SUFFIXES[kind.name]}"
