"""CAST of texts: numbers, truth values, dates and timestamps as Spark reads them.

Usual spellings are converted by Arrow, a whole column at once; each distinct unusual one by a function here, which
returns None for a text that is no value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.dataclass import dataclass
from headrace.operators.scalar.temporal.time_zones import instants_of
from headrace.operators.scalar.text.parse_times import read_date, read_timestamp
from headrace.operators.scalar.values.datum import Datum, Kernel, Outcome, build, failing, raw, valid
from headrace.schema import Type, to_arrow
from headrace.zones import rules_of

_BLANK: Final = "".join(map(chr, range(0x21))) + "\x7f"
_FLOATING: Final = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
_JAVA_FLOATING: Final = re.compile(f"({_FLOATING})[dDfF]?")
_JAVA_HEX: Final = re.compile(
    r"([+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[dDfF]?"
)
_NOT_FINITE: Final = {"nan": "nan", "inf": "inf", "infinity": "inf"}
_TRUE: Final = ("t", "true", "y", "yes", "1")
_FALSE: Final = ("f", "false", "n", "no", "0")


@dataclass(frozen=True, slots=True)
class _Reader:
    """`usual` is the pattern of texts that `convert` turns into `kind` without fail; `unusual` reads all others."""

    usual: str
    convert: Callable[[pa.Array], pa.Array]
    unusual: Callable[[str], Any]
    kind: pa.DataType
    letters: bytes | None = None
    """The letters of texts that Arrow reads as Spark does, or not at all; None if the pattern must be matched."""

    def read(self, texts: pa.Array) -> tuple[pa.Array, np.ndarray[Any, np.dtype[np.bool_]] | None]:
        """The values, and where a text is no value (NULL there)."""
        if self.letters is not None and _only(texts, self.letters):
            try:
                return self.convert(texts), None
            except pa.ArrowInvalid:
                pass  # some text is unusual: match each
        trimmed = pc.ascii_trim(texts, characters=_BLANK)
        fits = pc.match_substring_regex(trimmed, f"^(?:{self.usual})$")
        if pc.all(fits, min_count=0).as_py():
            return self.convert(trimmed), None
        values = self.convert(pc.if_else(fits, trimmed, pa.scalar(None, pa.string())))
        odd = pc.invert(pc.fill_null(fits, True))
        encoded = trimmed.filter(odd).dictionary_encode()
        parsed = pa.array([self.unusual(text) for text in encoded.dictionary.to_pylist()], self.kind)
        values = pc.replace_with_mask(values, odd, parsed.take(encoded.indices))
        bad = pc.and_(odd, pc.is_null(values)).to_numpy(zero_copy_only=False)
        return values, bad if bad.any() else None


def _only(texts: pa.Array, letters: bytes) -> bool:
    """Whether the texts hold no letters but these (in either case), judged by their bytes alone."""
    _, ends, data = texts.buffers()
    if data is None:
        return True
    offsets = np.frombuffer(ends, np.int32)
    signs = np.frombuffer(data, np.uint8)[offsets[texts.offset] : offsets[texts.offset + len(texts)]]
    if not letters:
        return int(signs.max(initial=0)) < ord("A")
    allowed = np.ones(256, np.bool_)
    allowed[ord("A") :] = False
    allowed[[*letters.lower(), *letters.upper()]] = True
    return bool(allowed[signs].all())


def reader(target: Type, zone: str = "UTC") -> Kernel:
    """The kernel of CAST(text AS target); `zone` is that of timestamps that name none."""
    if target.name == "BINARY":
        return lambda data: (data[0].cast(pa.binary()), None)
    value_reader = _reader(target) if zone == "UTC" else _reader_in(zone, to_arrow(target))

    def kernel(data: Sequence[Datum]) -> Outcome:
        values, bad = value_reader.read(data[0])
        bad = np.zeros(len(values), np.bool_) if bad is None else bad
        if target.is_integer and target.name != "BIGINT":
            limits = np.iinfo(to_arrow(target).to_pandas_dtype())
            numbers, where = raw(values), valid(values)
            bad = bad | ((numbers < limits.min) | (numbers > limits.max)) & (True if where is None else where)
            values = build(numbers.astype(limits.dtype), where, to_arrow(target))
        return values, failing(bad, data, lambda text: f"'{text}' cannot be cast to {target}")

    return kernel


def _reader(target: Type) -> _Reader:
    if target.is_integer:
        return _Reader("-?[0-9]{1,18}", lambda texts: texts.cast(pa.int64()), _integer, pa.int64(), b"")
    arrow = to_arrow(target)
    match target.name:
        case "DOUBLE" | "FLOAT":
            return _Reader(
                _FLOATING, lambda texts: texts.cast(arrow), lambda text: _floating(text, arrow), arrow, b"e"
            )
        case "DECIMAL":
            return _decimal_reader(target)
        case "BOOLEAN":
            return _Reader("true|false", lambda texts: pc.equal(texts, "true"), _boolean, arrow)
        case "DATE":
            return _Reader(_DAY, lambda texts: texts.cast(arrow), read_date, arrow)
        case _:
            return _Reader(_MOMENT, lambda texts: _instants(texts, arrow), read_timestamp, arrow)


def _reader_in(zone: str, kind: pa.DataType) -> _Reader:
    rules = rules_of(zone)
    assert rules is not None, zone

    def convert(texts: pa.Array) -> pa.Array:
        moments = texts.cast(pa.timestamp("us"))
        return build(instants_of(rules, raw(moments)), valid(moments), kind)

    return _Reader(_MOMENT.removesuffix("Z?"), convert, lambda text: read_timestamp(text, zone), kind)


# Days 29 to 31 do not exist in every month: those are read one by one. Years from 1000 keep clear of Arrow's limits.
_DAY: Final = "[1-9][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
_MOMENT: Final = _DAY + r"[ T](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?Z?"


def _instants(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    moments = pc.utf8_rtrim(texts, characters="Z").cast(pa.timestamp("us"))
    return build(raw(moments), valid(moments), kind)


def _integer(text: str) -> int | None:
    if re.fullmatch(r"[+-]?[0-9]+", text) is None or len(text.lstrip("+-0")) > 19:
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


def _floating(text: str, kind: pa.DataType) -> Any:
    bare = text.lstrip("+-").lower()
    if (
        bare in _NOT_FINITE
        and len(text) - len(bare) <= 1
        and (bare != "nan" or text in ("NaN", "+NaN", "-NaN") or text.lower() == bare)
    ):
        return float(("-" if text.startswith("-") else "") + _NOT_FINITE[bare])
    if (match := _JAVA_FLOATING.fullmatch(text)) is not None:
        return pa.scalar(match[1]).cast(kind).as_py()
    if (match := _JAVA_HEX.fullmatch(text)) is not None:
        return float.fromhex(match[1])
    return None


def _boolean(text: str) -> bool | None:
    folded = text.lower()
    return True if folded in _TRUE else False if folded in _FALSE else None


def _decimal_reader(target: Type) -> _Reader:
    whole, kind = target.precision - target.scale, to_arrow(target)
    fraction = rf"(?:\.[0-9]{{1,{target.scale}}})?" if target.scale else ""
    usual = rf"-?[0-9]{{1,{whole}}}{fraction}" if whole else "[^\\x00-\\x{10FFFF}]"
    return _Reader(usual, lambda texts: texts.cast(kind), lambda text: _decimal(text, target), kind)


def _decimal(text: str, target: Type) -> Decimal | None:
    if re.fullmatch(_FLOATING, text) is None:
        return None
    with localcontext(prec=1000, Emax=10**9, Emin=-(10**9)):
        value = Decimal(text)
        if value.adjusted() >= target.precision:
            return Decimal(0) if not value else None
        if value.adjusted() < -target.scale - 1:
            return Decimal(0)
        rounded = value.quantize(Decimal(1).scaleb(-target.scale), ROUND_HALF_UP)
        return rounded if abs(rounded) < Decimal(10) ** (target.precision - target.scale) else None
