"""The parser of scalar expressions: precedence climbing, with one recursion per level of nesting, none per term of a chain.

From loosest to tightest, as in Spark: OR, AND, NOT, predicates and comparisons, |, ^, &, shifts, + - ||, * / % DIV, signs, `::`.
"""

from __future__ import annotations

from typing import Final
from typing import Literal as Choice

from headrace.errors import Span, UserError
from headrace.language.parser.constant_lists import constant_list
from headrace.language.parser.literals import UNIT_NAMES, number
from headrace.language.parser.primaries import primary, string
from headrace.language.parser.subqueries import at_select, at_subselect, subselect
from headrace.language.parser.type_names import column_type
from headrace.language.syntax.ast import (
    Between,
    CastTo,
    Chain,
    Constant,
    Expr,
    Infix,
    InSelect,
    Is,
    Matches,
    OneOf,
    Prefix,
    Quantified,
    parts_of,
)
from headrace.language.syntax.cursor import DEEPEST, Cursor

OR, AND, NOT, PREDICATE, BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM, PRODUCT, SIGN, CAST = range(1, 13)

_SIGNS: Final = {
    **dict.fromkeys(("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"), PREDICATE),
    "|": BIT_OR,
    "^": BIT_XOR,
    "&": BIT_AND,
    **dict.fromkeys(("<<", ">>", ">>>"), SHIFT),
    **dict.fromkeys(("+", "-", "||"), SUM),
    **dict.fromkeys(("*", "/", "%"), PRODUCT),
    "::": CAST,
}
_WORDS: Final = {
    "OR": OR,
    "AND": AND,
    **dict.fromkeys(("NOT", "IS", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "BETWEEN"), PREDICATE),
    "DIV": PRODUCT,
}
_SAME: Final = {"==": "=", "!=": "<>"}
_QUANTIFIERS: Final = ("ALL", "ANY", "SOME")
_MATCHES: Final[dict[str, Choice["like", "ilike", "rlike"]]] = {
    "LIKE": "like",
    "ILIKE": "ilike",
    "RLIKE": "rlike",
    "REGEXP": "rlike",
}


def expression(cursor: Cursor) -> Expr:
    """Pass an expression.

    Raises `UserError` for anything else, and for one that nests too deep.
    """
    node = _climb(cursor, OR)
    if not cursor.nested:
        _check_depth(cursor, node)
    return node


def parse_expression(text: str, zone: str = "UTC") -> Expr:
    """The one expression of a text; `zone` is that of times without one.

    Raises `UserError` for anything else.
    """
    cursor = Cursor(text, zone=zone)
    node = expression(cursor)
    if not cursor.at_end:
        raise cursor.expected("the end of the expression")
    return node


def _climb(cursor: Cursor, loosest: int) -> Expr:
    """An expression of operators that bind at least as tightly as `loosest`."""
    cursor.down()
    left = _prefix(cursor)
    while (level := _level(cursor)) >= loosest:
        left = _continued(cursor, left, level)
    cursor.up()
    return left


def _level(cursor: Cursor) -> int:
    """The precedence of the operator at the cursor; 0 without one."""
    token = cursor.token
    if token.kind == "sign":
        return _SIGNS.get(token.text, 0)
    if token.upper == "NOT" and cursor.ahead().upper not in _WORDS:
        return 0
    if token.upper == "IN" and cursor.ahead().kind == "number" and cursor.ahead(2).upper in UNIT_NAMES:
        return 0  # how long an answer may take
    return _WORDS.get(token.upper, 0)


def _prefix(cursor: Cursor) -> Expr:
    token = cursor.token
    if token.kind == "number":
        return _number(cursor, token.span, negative=False)
    if token.upper == "NOT" or (token.kind == "sign" and token.text == "!"):
        cursor.advance()
        return Prefix("not", _climb(cursor, NOT), cursor.since(token.span))
    if token.kind == "sign" and token.text in ("-", "+", "~"):
        cursor.advance()
        if token.text == "-" and cursor.token.kind == "number":
            return _number(cursor, token.span, negative=True)
        return Prefix(token.text, _climb(cursor, SIGN), cursor.since(token.span))
    return primary(cursor, expression)


def _number(cursor: Cursor, start: Span, *, negative: bool) -> Constant:
    written = cursor.advance().text
    span = cursor.since(start)
    try:
        value, kind, shown = number(written, negative=negative)
    except UserError as error:
        raise cursor.error(error.message, span, error.remedy) from None
    return Constant(value, kind, shown, span)


def _continued(cursor: Cursor, left: Expr, level: int) -> Expr:
    """`left` with the operator at the cursor and what follows it."""
    word = cursor.token.upper
    if word in ("AND", "OR"):
        return _chain(cursor, left, "and" if word == "AND" else "or", level)
    if word in _WORDS and word != "DIV":
        return _predicate(cursor, left)
    sign = cursor.advance().text.lower()
    if sign == "::":
        return CastTo(left, column_type(cursor), False, cursor.since(left.span))
    quantified = level == PREDICATE and cursor.token.upper in _QUANTIFIERS and cursor.ahead().text == "("
    if quantified and at_select(cursor, 1):
        return _quantified(cursor, left, _SAME.get(sign, sign))
    return Infix(_SAME.get(sign, sign), left, _climb(cursor, level + 1), cursor.since(left.span))


def _quantified(cursor: Cursor, left: Expr, operator: str) -> Expr:
    """`a < ALL (SELECT …)` after its sign; `= ANY` is IN, `<> ALL` is NOT IN."""
    every = cursor.advance().upper == "ALL"
    cursor.expect_sign("(")
    select = subselect(cursor)
    span = cursor.since(left.span)
    if (operator, every) in (("=", False), ("<>", True)):
        return InSelect((left,), select, every, span)
    return Quantified(operator, left, select, every, span)


def _chain(cursor: Cursor, left: Expr, operator: Choice["and", "or"], level: int) -> Expr:
    operands = [left]
    while cursor.accept(operator.upper()):
        operands.append(_climb(cursor, level + 1))
    return Chain(operator, tuple(operands), cursor.since(left.span))


def _predicate(cursor: Cursor, left: Expr) -> Expr:
    if cursor.accept("IS"):
        return _is(cursor, left)
    negated = cursor.accept("NOT")
    if cursor.accept("BETWEEN"):
        low = _climb(cursor, PREDICATE + 1)
        cursor.expect("AND", purpose=" and the upper end of BETWEEN")
        high = _climb(cursor, PREDICATE + 1)
        return Between(left, low, high, negated, cursor.since(left.span))
    if cursor.accept("IN"):
        return _one_of(cursor, left, negated)
    if (kind := _MATCHES.get(cursor.token.upper)) is None:
        raise cursor.expected("IN, LIKE, RLIKE or BETWEEN after NOT")
    word = cursor.advance()
    if cursor.at_any(*_QUANTIFIERS) and cursor.ahead().text == "(":
        joined = "AND" if cursor.at_any("ALL") else "OR"
        raise cursor.unsupported(
            f"{word.upper} {cursor.token.upper} is not available",
            word.span.to(cursor.token.span),
            f"Write {word.upper} for each pattern, with {joined} between them.",
        )
    pattern = _climb(cursor, PREDICATE + 1)
    escape = None
    if kind != "rlike" and cursor.accept("ESCAPE"):
        if cursor.token.kind != "string":
            raise cursor.expected("a text of one character after ESCAPE")
        escape = string(cursor)
    return Matches(kind, left, pattern, escape, negated, cursor.since(left.span))


def _is(cursor: Cursor, left: Expr) -> Expr:
    negated = cursor.accept("NOT")
    if cursor.accept("DISTINCT", "FROM"):
        right = _climb(cursor, PREDICATE + 1)
        span = cursor.since(left.span)
        same = Infix("<=>", left, right, span)
        return same if negated else Prefix("not", same, span)
    for word, what in _IS.items():
        if cursor.accept(word):
            return Is(left, what, negated, cursor.since(left.span))
    raise cursor.expected("NULL, TRUE, FALSE or DISTINCT FROM after IS")


_IS: Final[dict[str, Choice["null", "true", "false"]]] = {
    "NULL": "null",
    "UNKNOWN": "null",
    "TRUE": "true",
    "FALSE": "false",
}


def _one_of(cursor: Cursor, left: Expr, negated: bool) -> Expr:
    cursor.expect_sign("(", " and the candidates of IN")
    if at_subselect(cursor):
        select = subselect(cursor)
        return InSelect((left,), select, negated, cursor.since(left.span))
    if cursor.token.kind == "list":
        if (listed := constant_list(cursor)) is not None:
            cursor.expect_sign(")")
            return OneOf(left, (listed,), negated, cursor.since(left.span))
        cursor.split_list()
    items = [_climb(cursor, OR)]
    while cursor.accept_sign(","):
        items.append(_climb(cursor, OR))
    cursor.expect_sign(")", " or ',' in the list of IN")
    return OneOf(left, tuple(items), negated, cursor.since(left.span))


def _check_depth(cursor: Cursor, root: Expr) -> None:
    """Checks the depth of chains of other operators than AND and OR, which lean to the left, in the finished tree."""
    level, depth = [root], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise cursor.error(
                f"an expression nests deeper than {DEEPEST} levels, here through a long chain of operators",
                root.span,
                "Split the expression, or compute parts of it in a query of their own.",
            )
        level = [part for node in level for part in parts_of(node)]
