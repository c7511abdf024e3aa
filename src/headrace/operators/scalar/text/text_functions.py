"""Functions of texts (case, trimming, padding, slices, search, replacement, joining): constant patterns and lengths in
Arrow kernels, the rest by Python calls.

Where Arrow differs from Spark, and for arguments that vary by row, there is one Python call for each distinct combination.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.scalar.values.datum import (
    Datum,
    Failure,
    Kernel,
    Outcome,
    all_valid,
    column,
    is_null,
    rows_of,
)

_LONGEST: Final = 1 << 27
"""Characters that one call may return for a row; the limit for all rows of a batch is eight times as many."""

Fast = Callable[..., pa.Array | None]
"""From the first text column and the constants to the result, or None if Arrow's kernel does not apply."""


def by_distinct(function: Callable[..., Any], kind: pa.DataType, *, strict: bool = True) -> Kernel:
    """A kernel that calls `function` once for each distinct combination of arguments."""

    def kernel(data: Sequence[Datum]) -> Outcome:
        arrays = [datum for datum in data if isinstance(datum, pa.Array)]
        if len(arrays) == 1 and strict:
            encoded = arrays[0].dictionary_encode()
            fixed = [None if isinstance(datum, pa.Array) else datum.as_py() for datum in data]
            index = next(i for i, datum in enumerate(data) if isinstance(datum, pa.Array))
            texts = encoded.dictionary.to_pylist()
            results = _within_capacity(function(*fixed[:index], text, *fixed[index + 1 :]) for text in texts)
            return pa.array(results, kind).take(encoded.indices), None
        rows = list(zip(*(column(datum, rows_of(data)).to_pylist() for datum in data), strict=True))
        distinct = list(set(rows))
        values = (None if strict and None in row else function(*row) for row in distinct)
        by_row = dict(zip(distinct, _within_capacity(values), strict=True))
        return pa.array([by_row[row] for row in rows], kind), None

    return kernel


def _within_capacity(values: Iterable[Any]) -> list[Any]:
    """The values, made one by one.

    Raises `OverflowError` once they are more text than a batch may have.
    """
    fitting, characters = [], 0
    for value in values:
        if isinstance(value, str):
            characters += len(value)
            if characters > 8 * _LONGEST:
                raise OverflowError(f"the texts of one batch have more than {8 * _LONGEST:,} characters")
        fitting.append(value)
    return fitting


def _fitting(characters: int) -> int:
    """A length that one text may have.

    Raises `OverflowError` for a greater one, before memory is taken for it.
    """
    if characters > _LONGEST:
        raise OverflowError(f"a text of {characters:,} characters is longer than {_LONGEST:,}")
    return characters


def fast(quick: Fast, slow: Callable[..., Any], kind: pa.DataType, text: int = 0) -> Kernel:
    """`quick` where all but the `text`-th argument are constants, else `slow` for each distinct combination."""
    general = by_distinct(slow, kind)

    def kernel(data: Sequence[Datum]) -> Outcome:
        others = [datum for index, datum in enumerate(data) if index != text]
        if isinstance(data[text], pa.Array) and all(isinstance(datum, pa.Scalar) for datum in others):
            result = quick(data[text], *(datum.as_py() for datum in others))
            if result is not None:
                return (result if result.type == kind else result.cast(kind)), None
        return general(data)

    return kernel


def _is_ascii(texts: pa.Array) -> bool:
    return bool(pc.all(pc.string_is_ascii(texts), min_count=0).as_py())


def _cased(ascii_kernel: Callable[[pa.Array], pa.Array], function: Callable[[str], str]) -> Kernel:
    return fast(lambda texts: ascii_kernel(texts) if _is_ascii(texts) else None, function, pa.string())


def _capitalised(text: str) -> str:
    return " ".join(_title(word[:1]) + word[1:].lower() for word in text.split(" "))


def _title(sign: str) -> str:
    return sign.title()


# ------------------------------------------------------------------------------------------------- slices and filling


def _substring(text: str, start: int, length: int = 2**31 - 1) -> str:
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[max(0, first) : max(0, first + length)]


def _quick_substring(texts: pa.Array, start: int, length: int = 2**31 - 1) -> pa.Array:
    if length <= 0:
        return pc.if_else(pc.is_valid(texts), "", texts)
    first = start - 1 if start > 0 else start
    stop = first + length
    beyond = stop >= 2**31 - 1 or (first < 0 <= stop)
    return pc.utf8_slice_codeunits(texts, first, None if beyond else stop)


def _right(text: str, length: int) -> str:
    return "" if length <= 0 else text[max(0, len(text) - length) :]


def _quick_right(texts: pa.Array, length: int) -> pa.Array:
    return _quick_substring(texts, -length) if length > 0 else _quick_substring(texts, 1, 0)


def _pad(text: str, length: int, filler: str, *, before: bool) -> str:
    missing = length - len(text)
    if missing <= 0 or not filler:
        return text[: max(0, length)]
    _fitting(length)
    added = (filler * (missing // len(filler) + 1))[:missing]
    return added + text if before else text + added


def padding(*, before: bool) -> Kernel:
    """`lpad` and `rpad`."""
    arrow = pc.utf8_lpad if before else pc.utf8_rpad

    def quick(texts: pa.Array, length: int, filler: str = " ") -> pa.Array | None:
        if len(filler) != 1 or length <= 0:
            return None
        _fitting(length)
        return pc.utf8_slice_codeunits(arrow(texts, length, padding=filler), 0, length)

    return fast(
        quick,
        lambda text, length, filler=" ": _pad(text, length, filler, before=before),
        pa.string(),
    )


def _repeat(text: str, times: int) -> str:
    _fitting(len(text) * max(0, times))
    return text * max(0, times)


def trimming(name: str) -> Kernel:
    """`trim`, `ltrim`, `rtrim`; with two arguments the characters come first."""
    strip = {"trim": str.strip, "ltrim": str.lstrip, "rtrim": str.rstrip}[name]
    arrow = {"trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}[name]
    spaces = fast(lambda texts: arrow(texts, characters=" "), lambda text: strip(text, " "), pa.string())

    def quick(texts: pa.Array, signs: str) -> pa.Array:
        return arrow(texts, characters=signs) if signs else texts

    characters = fast(quick, lambda signs, text: strip(text, signs), pa.string(), text=1)
    return lambda data: spaces(data) if len(data) == 1 else characters(data)


# ------------------------------------------------------------------------------------------------- finding and joining


def _find(text: str, searched: str) -> int:
    return text.find(searched) + 1


def _quick_find(texts: pa.Array, searched: str) -> pa.Array | None:
    return pc.add(pc.find_substring(texts, searched), 1) if _is_ascii(texts) else None


def _locate(searched: str | None, text: str | None, start: int | None = 1) -> int | None:
    if start is None:
        return 0
    if searched is None or text is None:
        return None
    if start < 1:
        return 0
    return 1 if not searched else text.find(searched, start - 1) + 1


def locate(data: Sequence[Datum]) -> Outcome:
    """`locate(searched, text[, from])`, 0 for a NULL `from`."""
    if len(data) == 2 and all_valid([d for d in data if isinstance(d, pa.Scalar)]) is None:
        return KERNELS["instr"]([data[1], data[0]])
    return by_distinct(_locate, pa.int32(), strict=False)(data)


def _split_part(text: str, delimiter: str, number: int) -> str:
    parts = text.split(delimiter) if delimiter else [text]
    index = number - 1 if number > 0 else len(parts) + number
    return parts[index] if 0 <= index < len(parts) and number else ""


def split_part(data: Sequence[Datum]) -> Outcome:
    """A part of a text; number 0 is an error."""
    values, _ = fast(_quick_split_part, _split_part, pa.string())(data)
    numbers = column(data[2], 1 if isinstance(data[2], pa.Scalar) else len(data[2]))
    zero = pc.fill_null(pc.equal(numbers, 0), False).to_numpy(zero_copy_only=False)
    mask = np.broadcast_to(zero, len(values))
    where = all_valid(data)
    mask = mask if where is None else mask & where
    return values, Failure(mask, lambda _: "split_part counts from 1, not 0") if mask.any() else None


def _quick_split_part(texts: pa.Array, delimiter: str, number: int) -> pa.Array | None:
    if not delimiter or number == 0:
        return None
    parts = pc.split_pattern(texts, delimiter)
    offsets = parts.offsets.to_numpy()
    index = offsets[:-1] + number - 1 if number > 0 else offsets[1:] + number
    inside = (index >= offsets[:-1]) & (index < offsets[1:])
    picked = pc.fill_null(parts.values.take(pa.array(index, mask=~inside)), "")
    return pc.if_else(pc.is_valid(texts), picked, texts)


def join(data: Sequence[Datum]) -> Outcome:
    """Texts one after the other."""
    return (data[0] if len(data) == 1 else pc.binary_join_element_wise(*data, "")), None


def join_with(data: Sequence[Datum]) -> Outcome:
    """Texts that are not NULL, with a separator between."""
    separator, *texts = data
    if is_null(separator):
        return separator, None
    if not texts:
        return pc.if_else(pc.is_valid(separator), "", separator), None
    if isinstance(separator, pa.Scalar):  # Arrow's own skipping of NULLs goes wrong where all are NULL
        pieces = [pc.fill_null(pc.binary_join_element_wise(separator, text, ""), "") for text in texts]
        return pc.utf8_slice_codeunits(
            pc.binary_join_element_wise(*pieces, ""), len(separator.as_py() or "")
        ), None
    return _join_by_row(data)


def _joined(separator: str | None, *texts: str | None) -> str | None:
    return None if separator is None else separator.join(text for text in texts if text is not None)


_join_by_row: Final = by_distinct(_joined, pa.string(), strict=False)


def _quick_replace(texts: pa.Array, searched: str, replacement: str = "") -> pa.Array:
    return pc.replace_substring(texts, searched, replacement) if searched else texts


def _replace(text: str, searched: str, replacement: str = "") -> str:
    return text.replace(searched, replacement) if searched else text


def _search(arrow: Callable[..., pa.Array], function: Callable[[str, str], bool]) -> Kernel:
    return fast(arrow, function, pa.bool_())


_STRING: Final = pa.string()

KERNELS: Final[dict[str, Kernel]] = {
    "||": join,
    "concat_ws": join_with,
    "upper": _cased(pc.ascii_upper, str.upper),
    "lower": _cased(pc.ascii_lower, str.lower),
    "initcap": by_distinct(_capitalised, _STRING),
    "length": lambda data: (pc.utf8_length(data[0]), None),
    "reverse": lambda data: (pc.utf8_reverse(data[0]), None),
    "trim": trimming("trim"),
    "ltrim": trimming("ltrim"),
    "rtrim": trimming("rtrim"),
    "substring": fast(_quick_substring, _substring, _STRING),
    "left": fast(
        lambda texts, length: _quick_substring(texts, 1, length), lambda t, n: t[: max(0, n)], _STRING
    ),
    "right": fast(_quick_right, _right, _STRING),
    "replace": fast(_quick_replace, _replace, _STRING),
    "instr": fast(_quick_find, _find, pa.int32()),
    "locate": locate,
    "lpad": padding(before=True),
    "rpad": padding(before=False),
    "repeat": fast(lambda t, n: pc.binary_repeat(t, max(0, n)), _repeat, _STRING),
    "startswith": _search(pc.starts_with, str.startswith),
    "endswith": _search(pc.ends_with, str.endswith),
    "contains": _search(pc.match_substring, lambda text, searched: searched in text),
    "split_part": split_part,
}
