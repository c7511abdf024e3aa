"""Spark's names of columns whose expression has no alias.

Spark names it after the expression as it reads it: `COUNT(*)` is `count(1)`, `a + b` is `(a + b)`, `a <> b` is
`(NOT (a = b))`; constants have no quotes; a cast of a plain column keeps the column's name.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Final

from headrace.algebra.expressions.expression import Literal
from headrace.language.parser.literals import java_double
from headrace.language.parser.primaries import WINDOWS
from headrace.language.syntax.ast import (
    Between,
    CaseWhen,
    CastTo,
    Chain,
    Constant,
    ConstantList,
    Exists,
    Expr,
    Extract,
    FunctionCall,
    Infix,
    InSelect,
    Is,
    Matches,
    Name,
    OneOf,
    Prefix,
    Quantified,
    ScalarSelect,
)
from headrace.schema import DATE, INTERVAL, Type

_CAPITAL_LIST: Final = """
ceil floor power sqrt exp signum regexp_like log10 log2 sin cos tan asin acos atan sinh cosh tanh
cbrt expm1 log1p rlike regexp
"""
_CAPITALS: Final = frozenset(_CAPITAL_LIST.split())
"""Functions that Spark writes in capitals in a column's name."""

_TRIMMED_SIDES: Final = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}
_DEFAULTS: Final = {
    ("round", 1): ("0",),
    ("bround", 1): ("0",),
    ("locate", 2): ("1",),
    ("position", 2): ("1",),
    ("regexp_replace", 3): ("1",),
    ("regexp_extract", 2): ("1",),
    ("lpad", 2): (" ",),
    ("rpad", 2): (" ",),
    ("unix_timestamp", 1): ("yyyy-MM-dd HH:mm:ss",),
    ("to_unix_timestamp", 1): ("yyyy-MM-dd HH:mm:ss",),
}
"""Default arguments that Spark shows in names."""

_LATER_DEFAULTS: Final = {
    ("percentile", 2): ("1",),
    ("substring", 2): ("2147483647",),
    ("substr", 2): ("2147483647",),
    ("replace", 2): ("",),
}
"""Those that names of a former layout do not have."""

_OF_ONE: Final = ("first", "first_value", "last", "last_value")
"""Functions whose second argument, whether they leave NULLs out, is in names of a former layout only. Spark calls them FIRST and LAST
where IGNORE NULLS or RESPECT NULLS follows.
"""


def output_name(node: Expr, kind: Type, *, former: bool = False) -> str:
    """The name of an unaliased column of the select list whose values are of this type.

    With `former` it is that of a query from before layout `OF_NAMES`, which keeps it.
    """
    if isinstance(node, Infix) and kind == DATE and node.operator in "+-":
        return f"date_{'add' if node.operator == '+' else 'sub'}({shown(node.left, former)}, {shown(node.right, former)})"
    if isinstance(node, CastTo) and isinstance(node.operand, Name):
        return node.operand.parts[-1]
    return shown(node, former)


def shown(node: Expr, former: bool) -> str:
    """An expression as Spark writes it inside a column's name."""
    match node:
        case Name():
            return node.parts[-1]
        case Constant():
            return node.shown
        case ConstantList():
            return ", ".join(map(_constant, node.constants.literals()))
        case Prefix(operator="~"):
            return f"~{shown(node.operand, former)}"
        case Prefix():
            return f"({node.operator.upper()} {shown(node.operand, former)})"
        case Infix():
            return _infix(node, former)
        case Chain():
            return _chain(node, former)
        case Between() | OneOf() | Matches() | Is():
            return _predicate(node, former)
        case FunctionCall():
            return _function(node, former)
        case CastTo():
            return f"{'TRY_' if node.safe else ''}CAST({shown(node.operand, former)} AS {node.type})"
        case CaseWhen():
            return _case(node, former)
        case Extract():
            return f"extract({node.field} FROM {shown(node.operand, former)})"
        case ScalarSelect():
            return "scalarsubquery()"
        case InSelect() | Exists() | Quantified():
            raise AssertionError("a SELECT inside a condition is not allowed in a select list")


def _constant(literal: Literal) -> str:
    match literal.value:
        case None:
            return "NULL"
        case float() as value:
            return java_double(value)
        case Decimal() as value:
            return format(value, "f")
        case date() as value:
            return f"DATE '{value.isoformat()}'"
        case value:
            return str(value)


def _infix(node: Infix, former: bool) -> str:
    left, right = shown(node.left, former), shown(node.right, former)
    if node.operator == "||":
        return f"concat({left}, {right})"
    if node.operator == "<>":
        return f"(NOT ({left} = {right}))"
    if node.operator in "+-" and (_is_interval(node.right) != _is_interval(node.left)):
        return f"{left} {node.operator} {right}"
    return f"({left} {node.operator} {right})"


def _is_interval(node: Expr) -> bool:
    return isinstance(node, Constant) and node.type == INTERVAL


def _chain(node: Chain, former: bool) -> str:
    word = node.operator.upper()
    first, *rest = (shown(operand, former) for operand in node.operands)
    return "(" * len(rest) + first + "".join(f" {word} {operand})" for operand in rest)


def _predicate(node: Between | OneOf | Matches | Is, former: bool) -> str:
    operand = shown(node.operand, former)
    match node:
        case Between():
            name = f"between({operand}, {shown(node.low, former)}, {shown(node.high, former)})"
        case OneOf():
            name = f"({operand} IN ({', '.join(shown(item, former) for item in node.items)}))"
        case Matches(kind="like"):
            name = _like(
                operand,
                shown(node.pattern, former),
                *(() if node.escape is None else (shown(node.escape, former),)),
            )
        case Matches():
            name = (
                f"{'RLIKE' if node.kind == 'rlike' else node.kind}({operand}, {shown(node.pattern, former)})"
            )
        case Is(what="null"):
            return f"({operand} IS {'NOT ' if node.negated else ''}NULL)"
        case Is():
            name = f"({operand} <=> {node.what})"
    return f"(NOT {name})" if node.negated else name


def _like(operand: str, pattern: str, escape: str = "\\") -> str:
    return f"{operand} LIKE {pattern}" + ("" if escape == "\\" else f" ESCAPE '{escape}'")


def _function(node: FunctionCall, former: bool) -> str:
    name = node.name.lower()
    if node.name.upper() in WINDOWS:
        return name if node.field is None else f"{name}.{node.field}"
    arguments = ["1"] if node.star else [shown(argument, former) for argument in node.arguments]
    arguments += _DEFAULTS.get((name, len(arguments)), ())
    if former:
        name = "locate" if name == "position" else name
    else:
        arguments += _LATER_DEFAULTS.get((name, len(arguments)), ())
    if node.ignores_nulls is not None or name == "any_value" or (name in _OF_ONE and not former):
        arguments = arguments[:1]
    if node.ignores_nulls is not None and name in _OF_ONE:
        name = name.removesuffix("_value")
    if name == "dateadd" and not former:
        name = "date_add"
    if name == "if":
        return f"(IF({', '.join(arguments)}))"
    if name in ("isnull", "isnotnull"):
        return f"({arguments[0]} IS {'NOT ' if name == 'isnotnull' else ''}NULL)"
    if name in _TRIMMED_SIDES and len(arguments) == 2:
        return f"TRIM({_TRIMMED_SIDES[name]} {arguments[0]} FROM {arguments[1]})"
    if name == "like":
        return _like(*arguments)
    if name == "ilike":
        return f"ilike({', '.join(arguments[:2])})"
    if name == "log" and len(arguments) == 1:
        return f"LOG(E(), {arguments[0]})"
    written = name.upper() if name in _CAPITALS or name == "log" else name
    call = f"{written}({'DISTINCT ' if node.distinct else ''}{', '.join(arguments)})"
    return call if node.condition is None else f"{call} FILTER (WHERE {shown(node.condition, former)})"


def _case(node: CaseWhen, former: bool) -> str:
    operand = "" if node.operand is None else shown(node.operand, former)
    parts = []
    for when, then in node.branches:
        condition = shown(when, former) if node.operand is None else f"({operand} = {shown(when, former)})"
        parts.append(f"WHEN {condition} THEN {shown(then, former)}")
    otherwise = "" if node.otherwise is None else f" ELSE {shown(node.otherwise, former)}"
    return f"CASE {' '.join(parts)}{otherwise} END"
