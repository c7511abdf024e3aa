r"""Which regular expressions mean the same to Java and to RE2, and how are they written for RE2?

Spark's patterns are Java's. What both engines understand alike is translated; what only Java has (look-around,
back-references, possessive quantifiers, `\b`, flags, Unicode classes) or what they read differently is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

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

    `tail` says that it may consume a line end that Java only looks at, `may_be_empty` that it matches nothing at all.
    """

    text: str
    groups: int
    tail: bool
    may_be_empty: bool


def translated(pattern: str) -> Pattern:
    """The Java pattern for RE2; raises `UnsupportedQuery` naming what is not understood alike."""
    parts: list[str] = []
    groups, place, tail = 0, 0, False
    while place < len(pattern):
        sign = pattern[place]
        if sign == "\\":
            piece, place = _escape(pattern, place, inside=False)
            parts.append(piece)
        elif sign == "[":
            piece, place = _class(pattern, place)
            parts.append(piece)
        elif sign == "(":
            if pattern.startswith("(?", place) and not pattern.startswith("(?:", place):
                raise _refused(pattern, pattern[place : place + 3])
            groups += not pattern.startswith("(?:", place)
            piece = "(?:" if pattern.startswith("(?:", place) else "("
            parts.append(piece)
            place += len(piece)
        elif sign in "*+?{":
            found = _QUANTIFIER.match(pattern, place)
            if found is None:
                raise _refused(pattern, sign)
            parts.append(found[0])
            place = found.end()
        else:
            tail = tail or sign == "$"
            parts.append({".": f"[^{_LINE_ENDS}]", "$": _END, "^": r"\A"}.get(sign, sign))
            place += 1
    text = "".join(parts)
    try:
        may_be_empty = pc.match_substring_regex(pa.array([""]), text)[0].as_py()
    except pa.ArrowInvalid:
        raise _refused(pattern, pattern) from None
    return Pattern(text, groups, tail, may_be_empty)


def check_like(pattern: str, escape: str) -> None:
    """Raises `UserError` for a LIKE pattern in which the escape stands before a sign that needs none, or at the end."""
    if len(escape) != 1:
        raise UserError(
            f"the escape of LIKE is one character, not '{escape}'",
            remedy="Write for example like(text, 'a!%', '!').",
        )
    place = 0
    while place < len(pattern):
        if pattern[place] == escape:
            place += 1
            if place == len(pattern) or pattern[place] not in ("%", "_", escape):
                raise UserError(
                    f"in the LIKE pattern '{pattern}' the escape '{escape}' is followed by neither '%', '_' nor itself",
                    remedy=f"Write it twice where it means itself: {escape}{escape}.",
                )
        place += 1


def _escape(pattern: str, place: int, *, inside: bool) -> tuple[str, int]:
    code = _CODE.match(pattern, place)
    if code is not None:
        return rf"\x{{{code[1] or code[2]}}}", code.end()
    sign = pattern[place + 1 : place + 2]
    if sign == "s":
        return _SPACE if inside else f"[{_SPACE}]", place + 2
    if sign == "S" and not inside:
        return f"[^{_SPACE}]", place + 2
    if sign and (sign in _KEPT or not (sign.isalnum() or ord(sign) > 127)):
        return f"\\{sign}", place + 2
    if sign == "z" and not inside:
        return r"\z", place + 2
    raise _refused(pattern, f"\\{sign}")


def _class(pattern: str, place: int) -> tuple[str, int]:
    parts = ["["]
    place += 1
    if pattern.startswith("^", place):
        parts.append("^")
        place += 1
    if pattern.startswith("]", place):
        raise _refused(pattern, "[]")
    while place < len(pattern) and pattern[place] != "]":
        if pattern[place] == "[" or pattern.startswith("&&", place):
            raise _refused(pattern, pattern[place])
        if pattern[place] == "\\":
            piece, place = _escape(pattern, place, inside=True)
        else:
            piece, place = pattern[place], place + 1
        parts.append(piece)
    if place == len(pattern):
        raise _refused(pattern, "[")
    return "".join([*parts, "]"]), place + 1


def rewritten(replacement: str, groups: int) -> str:
    r"""A Java replacement text (`$1`, `\$`) as RE2 writes it; raises `UnsupportedQuery`."""
    parts, place = [], 0
    while place < len(replacement):
        sign = replacement[place]
        if sign in "$\\":
            place += 1
            after = replacement[place : place + 1]
            if sign == "$" and not (after.isdecimal() and after.isascii() and int(after) <= groups < 10):
                raise _refused(replacement, f"${after}")
            if not after:
                raise _refused(replacement, sign)
            parts.append(f"\\{after}" if sign == "$" else after.replace("\\", "\\\\"))
        else:
            parts.append(sign)
        place += 1
    return "".join(parts)


def _refused(pattern: str, what: str) -> UnsupportedQuery:
    return UnsupportedQuery(
        f"the pattern '{pattern}' uses '{what}', which cannot be matched exactly as Spark does",
        remedy="Use literals, classes, groups, alternation and plain quantifiers.",
    )
