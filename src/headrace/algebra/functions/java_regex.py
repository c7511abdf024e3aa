r"""Translation of Java's regular expressions, and of replacement texts, into RE2's; and the check of escapes in LIKE
patterns.

Spark's patterns are Java's. Syntax with one meaning in both engines is translated; syntax that only Java has (look-around,
back-references, possessive quantifiers, `\b`, flags, Unicode classes), or that differs, is refused.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.dataclass import dataclass
from headrace.errors import UnsupportedQuery, UserError

_LINE_ENDS: Final = r"\n\r\x{85}\x{2028}\x{2029}"
_SPACE: Final = r" \t\n\x0b\f\r"
_END: Final = rf"(?:(?:\r\n|[{_LINE_ENDS}])?\z)"
_QUANTIFIER: Final = re.compile(r"(?:[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})\??(?![+*?])")
_CODE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4}))")
_KEPT: Final = "dDwWtnrf"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression for RE2.

    `has_end_anchor`: it may consume a line end that Java does not consume. `may_be_empty`: it matches the empty text.
    """

    text: str
    groups: int
    has_end_anchor: bool
    may_be_empty: bool


def translated(pattern: str) -> Pattern:
    """The Java pattern for RE2; raises `UnsupportedQuery` that names the syntax without an equal meaning."""
    parts: list[str] = []
    groups, position, has_end_anchor = 0, 0, False
    while position < len(pattern):
        sign = pattern[position]
        if sign == "\\":
            piece, position = _escape(pattern, position, inside=False)
            parts.append(piece)
        elif sign == "[":
            piece, position = _class(pattern, position)
            parts.append(piece)
        elif sign == "(":
            if pattern.startswith("(?", position) and not pattern.startswith("(?:", position):
                raise _refused(pattern, pattern[position : position + 3])
            groups += not pattern.startswith("(?:", position)
            piece = "(?:" if pattern.startswith("(?:", position) else "("
            parts.append(piece)
            position += len(piece)
        elif sign in "*+?{":
            quantifier = _QUANTIFIER.match(pattern, position)
            if quantifier is None:
                raise _refused(pattern, sign)
            parts.append(quantifier[0])
            position = quantifier.end()
        else:
            has_end_anchor = has_end_anchor or sign == "$"
            parts.append({".": f"[^{_LINE_ENDS}]", "$": _END, "^": r"\A"}.get(sign, sign))
            position += 1
    text = "".join(parts)
    try:
        may_be_empty = pc.match_substring_regex(pa.array([""]), text)[0].as_py()
    except pa.ArrowInvalid:
        raise _refused(pattern, pattern) from None
    return Pattern(text, groups, has_end_anchor, may_be_empty)


def check_like(pattern: str, escape: str) -> None:
    """Raises `UserError` for a LIKE pattern whose escape is at the end, or before a sign that needs none."""
    position = 0
    while position < len(pattern):
        if pattern[position] == escape:
            position += 1
            if position == len(pattern) or pattern[position] not in ("%", "_", escape):
                raise UserError(
                    f"in the LIKE pattern '{pattern}' the escape '{escape}' is followed by neither '%', '_' nor itself",
                    remedy=f"Write it twice where it means itself: {escape}{escape}.",
                )
        position += 1


def _escape(pattern: str, position: int, *, inside: bool) -> tuple[str, int]:
    code = _CODE.match(pattern, position)
    if code is not None:
        return rf"\x{{{code[1] or code[2]}}}", code.end()
    sign = pattern[position + 1 : position + 2]
    if sign == "s":
        return _SPACE if inside else f"[{_SPACE}]", position + 2
    if sign == "S" and not inside:
        return f"[^{_SPACE}]", position + 2
    if sign and (sign in _KEPT or not (sign.isalnum() or ord(sign) > 127)):
        return f"\\{sign}", position + 2
    if sign == "z" and not inside:
        return r"\z", position + 2
    raise _refused(pattern, f"\\{sign}")


def _class(pattern: str, position: int) -> tuple[str, int]:
    parts = ["["]
    position += 1
    if pattern.startswith("^", position):
        parts.append("^")
        position += 1
    if pattern.startswith("]", position):
        raise _refused(pattern, "[]")
    while position < len(pattern) and pattern[position] != "]":
        if pattern[position] == "[" or pattern.startswith("&&", position):
            raise _refused(pattern, pattern[position])
        if pattern[position] == "\\":
            piece, position = _escape(pattern, position, inside=True)
        else:
            piece, position = pattern[position], position + 1
        parts.append(piece)
    if position == len(pattern):
        raise _refused(pattern, "[")
    return "".join([*parts, "]"]), position + 1


def translated_replacement(replacement: str, groups: int) -> str:
    r"""A Java replacement text (`$1`, `\$`) in RE2's syntax; raises `UnsupportedQuery`."""
    parts, position = [], 0
    while position < len(replacement):
        sign = replacement[position]
        if sign in "$\\":
            position += 1
            after = replacement[position : position + 1]
            if sign == "$" and not (after.isdecimal() and after.isascii() and int(after) <= groups < 10):
                raise _refused(replacement, f"${after}")
            if not after:
                raise _refused(replacement, sign)
            parts.append(f"\\{after}" if sign == "$" else after.replace("\\", "\\\\"))
        else:
            parts.append(sign)
        position += 1
    return "".join(parts)


def _refused(pattern: str, what: str) -> UnsupportedQuery:
    return UnsupportedQuery(
        f"the pattern '{pattern}' uses '{what}', which cannot be matched exactly as Spark does",
        remedy="Use literals, classes, groups, alternation and plain quantifiers.",
    )
