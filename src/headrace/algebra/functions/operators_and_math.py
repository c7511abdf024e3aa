"""Rows of the function table (name, type rule, help text): operators (arithmetic, comparisons, logic, IN, LIKE, ||, bits),
choices such as COALESCE and IF, and mathematics.
"""

from __future__ import annotations

from typing import Final

from headrace.algebra.functions import type_rules as rules
from headrace.algebra.functions.entry import Function, nonstrict
from headrace.algebra.functions.type_rules import (
    anything,
    cast_to_common,
    fixed,
    like_pattern,
    repeated,
    truth,
)
from headrace.schema import BOOLEAN, DOUBLE, STRING

_COMPARED: Final = cast_to_common(2, 2, BOOLEAN, ordered=True)

OPERATORS: Final = (
    Function(
        "+",
        "number + number",
        rules.plus,
        "Sum; also DATE + days, TIMESTAMP + INTERVAL, INTERVAL + INTERVAL.",
        "1 + 2.5D",
    ),
    Function(
        "-", "number - number", rules.minus, "Difference; of two points in time an INTERVAL.", "1 - 2.5D"
    ),
    Function("*", "number * number", rules.times, "Product; also INTERVAL * number.", "3 * 1.5D"),
    Function(
        "/",
        "number / number",
        rules.divided,
        "Quotient, DOUBLE unless DECIMAL; a zero divisor is an error.",
        "7 / 2",
    ),
    Function(
        "%",
        "number % number",
        rules.remainder,
        "Remainder with the sign of the dividend.",
        "-7 % 3",
        aliases=("mod",),
    ),
    Function(
        "div",
        "number div number",
        rules.whole_quotient,
        "Quotient cut off towards zero, a BIGINT.",
        "-7 div 2",
    ),
    Function(
        "pmod",
        "pmod(number, number)",
        rules.remainder,
        "Remainder that is not negative for a positive divisor.",
        "pmod(-7, 3)",
    ),
    Function(
        "negate", "-number", rules.signed, "The number with the other sign.", "-(5)", aliases=("negative",)
    ),
    Function("=", "a = b", _COMPARED, "Equal; NaN equals NaN, -0.0 equals 0.0.", "1 = 1.0D", aliases=("==",)),
    nonstrict(
        "<=>",
        "a <=> b",
        _COMPARED,
        "Equal, where NULL equals NULL; never NULL.",
        "NULL <=> 1",
        aliases=("equal_null",),
    ),
    Function("<>", "a <> b", _COMPARED, "Not equal.", "1 <> 2", aliases=("!=",)),
    Function(
        "<", "a < b", _COMPARED, "Less; NaN is greater than every number, false less than true.", "1 < 2"
    ),
    Function("<=", "a <= b", _COMPARED, "Less or equal.", "1 <= 2"),
    Function(">", "a > b", _COMPARED, "Greater.", "1 > 2"),
    Function(">=", "a >= b", _COMPARED, "Greater or equal.", "1 >= 2"),
    nonstrict(
        "and",
        "a AND b …",
        truth(2, None),
        "False as soon as one is false, even where another one fails or is NULL.",
        "true AND NULL",
    ),
    nonstrict(
        "or",
        "a OR b …",
        truth(2, None),
        "True as soon as one is true, even where another one fails or is NULL.",
        "true OR NULL",
    ),
    Function("not", "NOT a", truth(1, 1), "The other truth value.", "NOT true", aliases=("!",)),
    nonstrict("isnull", "a IS NULL", anything(BOOLEAN), "Whether the value is NULL.", "1 IS NULL"),
    nonstrict(
        "isnotnull", "a IS NOT NULL", anything(BOOLEAN), "Whether the value is not NULL.", "1 IS NOT NULL"
    ),
    nonstrict(
        "in",
        "a IN (b, …)",
        cast_to_common(2, None, BOOLEAN, ordered=True),
        "Equal to one of the list; NULL if that depends on a NULL.",
        "2 IN (1, 2, NULL)",
    ),
    Function(
        "like",
        "text LIKE pattern [ESCAPE sign]",
        like_pattern(),
        "Whether the whole text matches; `%` any characters, `_` one, `\\` or the sign, a constant, escapes. Also `like(text, pattern[, sign])`.",
        "'headrace' LIKE 'h_ad%'",
    ),
    Function(
        "ilike",
        "text ILIKE pattern [ESCAPE sign]",
        like_pattern(folded=True),
        "LIKE without regard to case.",
        "'HEAD' ILIKE 'h_a%'",
    ),
    Function(
        "||",
        "a || b",
        repeated(STRING, STRING),
        "Concatenation of texts.",
        "'head' || 'race'",
        aliases=("concat",),
    ),
)

_PLACES: Final = "of the places only the last five bits count, six for a BIGINT."

BITS: Final = (
    Function("&", "number & number", rules.combined_bits, "The bits that both have.", "6 & 3"),
    Function("|", "number | number", rules.combined_bits, "The bits that one has.", "6 | 3"),
    Function("^", "number ^ number", rules.combined_bits, "The bits that just one has.", "6 ^ 3"),
    Function("~", "~number", rules.inverted_bits, "The bits that it does not have.", "~6"),
    Function(
        "<<",
        "number << places",
        rules.shifted_bits,
        f"The bits moved to the left; {_PLACES}",
        "1 << 4",
        aliases=("shiftleft",),
    ),
    Function(
        ">>",
        "number >> places",
        rules.shifted_bits,
        f"The bits moved to the right, where the sign is repeated; {_PLACES}",
        "-16 >> 2",
        aliases=("shiftright",),
    ),
    Function(
        ">>>",
        "number >>> places",
        rules.shifted_bits,
        f"The bits moved to the right, where zeros come in; {_PLACES}",
        "-16 >>> 28",
        aliases=("shiftrightunsigned",),
    ),
    Function(
        "bit_count",
        "bit_count(number)",
        rules.counted_bits,
        "How many of its bits are 1, of a negative number in 64 bits.",
        "bit_count(7)",
    ),
    Function(
        "getbit",
        "getbit(number, position)",
        rules.one_bit,
        "The bit at a position counted from 0 at the right; an error for a position that the type does not have.",
        "getbit(5, 2)",
        aliases=("bit_get",),
    ),
)

CHOICES: Final = (
    nonstrict(
        "coalesce",
        "coalesce(a, …)",
        cast_to_common(1),
        "The first that is not NULL; those after it raise no errors.",
        "coalesce(NULL, 2, 3)",
    ),
    nonstrict(
        "ifnull",
        "ifnull(a, b)",
        cast_to_common(2, 2),
        "b where a is NULL.",
        "ifnull(NULL, 2)",
        aliases=("nvl",),
    ),
    nonstrict(
        "nvl2", "nvl2(a, b, c)", rules.choice_by_null, "b where a is not NULL, else c.", "nvl2(NULL, 1, 2)"
    ),
    nonstrict("nullif", "nullif(a, b)", rules.null_if_equal, "NULL where a = b, else a.", "nullif(2, 2)"),
    nonstrict(
        "if",
        "if(condition, a, b)",
        rules.choice,
        "a where the condition is true, else b; the other raises no errors.",
        "if(true, 1, 2)",
        aliases=("iff",),
    ),
    nonstrict(
        "greatest",
        "greatest(a, b, …)",
        cast_to_common(2, ordered=True),
        "The greatest that is not NULL; NaN is greatest.",
        "greatest(1, NULL, 3)",
    ),
    nonstrict(
        "least",
        "least(a, b, …)",
        cast_to_common(2, ordered=True),
        "The least that is not NULL.",
        "least(1, NULL, 3)",
    ),
    nonstrict(
        "isnan",
        "isnan(number)",
        fixed(BOOLEAN, DOUBLE),
        "Whether the value is NaN; false for NULL.",
        "isnan(double('NaN'))",
    ),
    nonstrict(
        "nanvl",
        "nanvl(a, b)",
        fixed(DOUBLE, DOUBLE, DOUBLE),
        "b where a is NaN, else a.",
        "nanvl(double('NaN'), 1.5D)",
    ),
)

_real = fixed(DOUBLE, DOUBLE)

MATHEMATICS: Final = (
    Function("abs", "abs(number)", rules.signed, "Without its sign.", "abs(-5)"),
    Function(
        "ceil",
        "ceil(number)",
        rules.integral,
        "The least whole number that is not below.",
        "ceil(-1.5D)",
        aliases=("ceiling",),
    ),
    Function(
        "floor",
        "floor(number)",
        rules.integral,
        "The greatest whole number that is not above.",
        "floor(-1.5D)",
    ),
    Function(
        "round",
        "round(number[, digits])",
        rules.rounded,
        "Rounded, halves away from zero; the digits are a constant.",
        "round(2.5D)",
    ),
    Function(
        "bround",
        "bround(number[, digits])",
        rules.rounded,
        "Rounded, halves to the even neighbour; the digits are a constant.",
        "bround(2.5D)",
    ),
    Function("sign", "sign(number)", _real, "-1.0, 0.0 or 1.0.", "sign(-3)", aliases=("signum",)),
    Function("sqrt", "sqrt(number)", _real, "Square root; NaN of negative numbers.", "sqrt(2)"),
    Function("exp", "exp(number)", _real, "e to the power.", "exp(0)"),
    Function("ln", "ln(number)", _real, "Natural logarithm; NULL of what is not positive.", "ln(10)"),
    Function(
        "log",
        "log([base, ]number)",
        fixed(DOUBLE, DOUBLE, optional=(DOUBLE,)),
        "Logarithm, natural without a base; NULL of what is not positive.",
        "log(2, 10)",
    ),
    Function(
        "log10", "log10(number)", _real, "Decimal logarithm; NULL of what is not positive.", "log10(1000)"
    ),
    Function("log2", "log2(number)", _real, "Binary logarithm; NULL of what is not positive.", "log2(8)"),
    Function(
        "pow",
        "pow(number, number)",
        fixed(DOUBLE, DOUBLE, DOUBLE),
        "Power.",
        "pow(2, 10)",
        aliases=("power",),
    ),
)
