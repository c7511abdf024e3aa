"""LIKE, ILIKE, RLIKE, `regexp_extract` and `regexp_replace`. Constant patterns become Arrow kernels once, when they are
compiled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.functions.java_regex import translated, translated_replacement
from headrace.operators.scalar.text.text_functions import KERNELS as TEXTS
from headrace.operators.scalar.values.datum import Datum, Failure, Kernel, Outcome, all_valid, column, rows_of

Parts = list[str | None]
"""Literal pieces of a LIKE pattern; None is `%`, and `_` is the one-character string of `ANY`."""
ANY: Final = "\0any"


def like(pattern: Any, escape: Any, *, folded: bool) -> Kernel:
    """LIKE, or ILIKE when `folded`; `pattern` and `escape` are None if they are not constant."""
    lower = TEXTS["lower"]

    def prepared(data: Sequence[Datum]) -> Sequence[Datum]:
        if not folded:
            return data
        return [
            lower([datum])[0] if isinstance(datum, pa.Array) else _lowered(datum) for datum in data[:2]
        ] + [*data[2:]]

    constant = isinstance(pattern, str) and isinstance(escape, str)
    parts = _parsed(pattern.lower() if folded else pattern, escape) if constant else None
    match = None if parts is None else _matcher(parts)

    def kernel(data: Sequence[Datum]) -> Outcome:
        texts, *rest = prepared(data)
        if constant and match is None:
            return _misfit(data)
        if match is not None and isinstance(texts, pa.Array):
            return match(texts), None
        return _by_row([texts, *rest])

    return kernel


def _lowered(datum: pa.Scalar) -> pa.Scalar:
    return pa.scalar(datum.as_py().lower(), pa.string()) if datum.is_valid else datum


def _parsed(pattern: str, escape: str) -> Parts | None:
    """The pieces of a pattern; None for one that escapes what needs no escape."""
    parts: Parts = []
    index = 0
    while index < len(pattern):
        sign = pattern[index]
        if sign == escape:
            index += 1
            if index == len(pattern) or pattern[index] not in ("%", "_", escape):
                return None
            parts.append(pattern[index])
        else:
            parts.append({"%": None, "_": ANY}.get(sign, sign))
        index += 1
    return parts


def _matcher(parts: Parts) -> Callable[[pa.Array], pa.Array]:
    inner = [part for part in parts if part is not None]
    if ANY not in inner:
        text = "".join(inner)
        starts, ends = parts[:1] == [None], parts[-1:] == [None]
        middle = parts[starts : len(parts) - ends]
        if None not in middle:
            return _simple(text, starts=starts, ends=ends)
    expression = "".join({None: ".*", ANY: "."}.get(p) or re.escape(p or "") for p in parts)
    return lambda texts: pc.match_substring_regex(texts, f"(?s)\\A(?:{expression})\\z")


def _simple(text: str, *, starts: bool, ends: bool) -> Callable[[pa.Array], pa.Array]:
    if starts and ends:
        return lambda texts: pc.match_substring(texts, text)
    if starts:
        return lambda texts: pc.ends_with(texts, text)
    if ends:
        return lambda texts: pc.starts_with(texts, text)
    return lambda texts: pc.equal(texts, text)


def _matches(text: str, parts: Parts) -> bool:
    expression = "".join({None: ".*", ANY: "."}.get(p) or re.escape(p or "") for p in parts)
    return re.fullmatch(expression, text, re.DOTALL) is not None


def _by_row(data: Sequence[Datum]) -> Outcome:
    rows = rows_of(data)
    columns = [column(datum, rows).to_pylist() for datum in data]
    escapes = columns[2] if len(columns) > 2 else ["\\"] * rows
    results: dict[tuple[Any, ...], bool | None] = {}
    bad: set[tuple[Any, ...]] = set()
    keys = list(zip(columns[0], columns[1], escapes, strict=True))
    for key in set(keys):
        text, pattern, escape = key
        parts = None if None in key else _parsed(pattern, escape)
        results[key] = None if parts is None else _matches(text, parts)
        if parts is None and None not in key:
            bad.add(key)
    mask = np.array([key in bad for key in keys], np.bool_)
    failure = Failure(mask, lambda row: _reason(keys[row][1])) if bad else None
    return pa.array([results[key] for key in keys], pa.bool_()), failure


def _reason(pattern: str) -> str:
    return f"the LIKE pattern '{pattern}' escapes what needs no escape"


def _misfit(data: Sequence[Datum]) -> Outcome:
    rows, where = rows_of(data), all_valid(data)
    mask = np.ones(rows, np.bool_) if where is None else np.broadcast_to(where, rows)
    failure = Failure(mask, lambda _: _reason(data[1].as_py())) if mask.any() else None
    return pa.nulls(rows, pa.bool_()), failure


# ------------------------------------------------------------------------------------------------ regular expressions


def rlike(pattern: str) -> Kernel:
    """Whether the pattern matches somewhere."""
    expression = translated(pattern).text
    return lambda data: (pc.match_substring_regex(data[0], expression), None)


def extract(pattern: str, group: int) -> Kernel:
    """A group of the first match, empty where there is none."""
    expression = _with_named_group(translated(pattern).text, group)

    def kernel(data: Sequence[Datum]) -> Outcome:
        groups = pc.extract_regex(data[0], expression)
        return pc.if_else(pc.is_valid(data[0]), pc.fill_null(groups.field("group"), ""), data[0]), None

    return kernel


def _with_named_group(expression: str, group: int) -> str:
    """Only the requested group captures, by a name; Arrow requires all captured groups to have one."""
    parts: list[str] = []
    seen, index, inside = 0, 0, False
    while index < len(expression):
        sign = expression[index]
        if sign == "\\":
            parts.append(expression[index : index + 2])
            index += 2
            continue
        inside = sign == "[" or (inside and sign != "]")
        if sign == "(" and not inside and not expression.startswith("(?", index):
            seen += 1
            sign = "(?P<group>" if seen == group else "(?:"
        parts.append(sign)
        index += 1
    return "".join(parts) if group else f"(?P<group>{''.join(parts)})"


def replaced(pattern: str, replacement: str) -> Kernel:
    """Every match replaced."""
    translation = translated(pattern)
    text = translated_replacement(replacement, translation.groups)
    return lambda data: (pc.replace_substring_regex(data[0], translation.text, text), None)
