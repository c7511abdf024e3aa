"""Plausible mistakes: changes of one expression that a test should notice."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "argmin": "argmax", "argmax": "argmin"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one mistake in it: where, and what was replaced by what."""

    line: int
    before: str
    after: str
    source: str


def mutants(source: str, lines: Collection[int]) -> Iterator[Mutant]:
    """Every mistake in the given lines, each in a copy of the whole module."""
    tree = ast.parse(source)
    text = source.splitlines(keepends=True)
    skipped = set(_annotations(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr) or node.lineno not in lines or node in skipped:
            continue
        if node.end_lineno != node.lineno:
            continue  # a replacement on one line leaves all others as they are
        before = ast.get_source_segment(source, node) or ""
        for after in _changed(node):
            line = text[node.lineno - 1].encode()
            changed = line[: node.col_offset] + after.encode() + line[node.end_col_offset :]
            copy = [*text[: node.lineno - 1], changed.decode(), *text[node.lineno :]]
            yield Mutant(node.lineno, before, after, "".join(copy))


def _changed(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Compare(left=left, ops=[operator, *more], comparators=others) if type(operator) in _COMPARED:
            yield ast.unparse(ast.Compare(left, [_COMPARED[type(operator)](), *more], others))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _COMPUTED:
            yield f"({ast.unparse(ast.BinOp(left, _COMPUTED[type(operator)](), right))})"
        case ast.BoolOp(op=ast.And(), values=values):
            yield f"({ast.unparse(ast.BoolOp(ast.Or(), values))})"
        case ast.BoolOp(op=ast.Or(), values=values):
            yield f"({ast.unparse(ast.BoolOp(ast.And(), values))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"bool({ast.unparse(operand)})"
        case ast.Constant(value=bool() as value):
            yield repr(not value)
        case ast.Constant(value=int() as value):
            yield repr(value + 1)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords) if name in _CALLED:
            yield ast.unparse(ast.Call(ast.Name(_CALLED[name]), arguments, keywords))
        case ast.Call(func=ast.Attribute(value=of, attr=name), args=arguments, keywords=keywords) if (
            name in _CALLED
        ):
            yield ast.unparse(ast.Call(ast.Attribute(of, _CALLED[name]), arguments, keywords))


def _annotations(tree: ast.AST) -> Iterator[ast.AST]:
    """Expressions in which a mistake is none: types, arguments of decorators, and whether `zip` looks for mistakes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "strict":
            yield node.value
        for decorator in getattr(node, "decorator_list", ()):
            yield from ast.walk(decorator)
        for types in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(types, ast.AST):
                yield from ast.walk(types)
