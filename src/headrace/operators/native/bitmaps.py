"""The call of `bitmaps.c`: counts, sums and the first and last lanes of many queries over a laid out batch.

All arrays are checked here for their kind and made contiguous; the kernel checks nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.native.arrays import Arrays
from headrace.operators.native.library import library, widest

_LONG = ctypes.c_int64
_POINTER = ctypes.c_void_p


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """The boxes of queries, box by box: query q has boxes `boxes[q]` to `boxes[q + 1]`, a box its `factors` likewise.

    Factor f accepts the rows in the XOR of the bitmaps `bitmaps[starts[f]:starts[f + 1]]` of attribute `attributes[f]`.
    """

    boxes: Ints
    factors: Ints
    attributes: Ints
    starts: Ints
    bitmaps: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Rows that are counted together: those in the words `valid`, None for all; with `ends`, also the first and last."""

    valid: np.ndarray | None
    ends: bool


@dataclass(frozen=True, slots=True, eq=False)
class Total:
    """A sum over the rows of kind number `kind`.

    Numbers are given by their bits, `slices` of shape (bits, words), how many of these each word needs at most in
    `widths`, and the base of each word or None; or, of doubles, by lane in `doubles`.
    """

    kind: int
    slices: np.ndarray | None = None
    widths: Ints | None = None
    bases: np.ndarray | None = None
    doubles: np.ndarray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Per query and cell of a kind: how many rows, and their first and last lanes, -1 without rows, if asked for."""

    counts: Ints
    first: Ints | None
    last: Ints | None


class _Layout(ctypes.Structure):
    _fields_ = [
        *((name, _POINTER) for name in ("mask", "starts")),
        ("first", _LONG),
        ("cells", _LONG),
    ]


class _Attribute(ctypes.Structure):
    _fields_ = [*((name, _POINTER) for name in ("keys", "table", "ranks")), ("cuts", _LONG)]


class _Queries(ctypes.Structure):
    _fields_ = [
        ("count", _LONG),
        *((name, _POINTER) for name in ("boxes", "factors", "attributes", "starts", "bitmaps")),
    ]


class _Kind(ctypes.Structure):
    _fields_ = [(name, _POINTER) for name in ("valid", "counts", "first", "last")]


class _Total(ctypes.Structure):
    _fields_ = [
        ("kind", _LONG),
        ("words", _LONG),
        *((name, _POINTER) for name in ("slices", "bases", "widths", "low", "high")),
    ]


class _Doubles(ctypes.Structure):
    _fields_ = [("kind", _LONG), ("values", _POINTER), ("sums", _POINTER)]


class _Fold(ctypes.Structure):
    _fields_ = [
        ("layout", _Layout),
        ("queries", _Queries),
        *((name, _LONG) for name in ("attribute_count", "kind_count", "total_count", "double_count")),
        *((name, _POINTER) for name in ("attributes", "kinds", "totals", "doubles")),
    ]


def fold(
    mask: np.ndarray,
    starts: Ints,
    cells: range,
    ranks: Sequence[tuple[np.ndarray, np.ndarray | None, int]],
    factors: Factors,
    kinds: Sequence[Kind],
    totals: Sequence[Total],
    width: int | None = None,
) -> tuple[list[Counted], list[tuple[np.ndarray, ...]]]:
    """Fold the words of some cells, for all queries of `factors`: per kind its `Counted`, per total (low, high) with
    low + 2^32 high the sum, or (sum,) of doubles; each of shape (queries, cells).

    `ranks` of each attribute are keys by lane, a table of the rank of each key (None: the keys are ranks), and the number
    of cuts; `width` is that of `library.widest`, or less. Raises
    `MemoryError`.
    """
    loaded = library()
    assert loaded is not None
    held, shape = Arrays(), (len(factors.boxes) - 1, len(cells))
    counted = [_counted(kind, shape) for kind in kinds]
    sums: list[tuple[np.ndarray, ...]] = [
        (np.zeros(shape),) if total.slices is None else (np.zeros(shape, np.int64), np.zeros(shape, np.int64))
        for total in totals
    ]
    pairs = list(zip(totals, sums, strict=True))
    integers = [_integers(total, into, held) for total, into in pairs if total.slices is not None]
    doubles = [_doubles(total, into, held) for total, into in pairs if total.slices is None]
    attributes = [_attribute(*of, held) for of in ranks]
    structures = [
        _Kind(
            held.pointer(kind.valid, np.uint64),
            *(held.pointer(array, np.int64) for array in (into.counts, into.first, into.last)),
        )
        for kind, into in zip(kinds, counted, strict=True)
    ]
    request = _Fold(
        _Layout(
            held.pointer(mask, np.uint64),
            held.pointer(starts, np.int64),
            cells.start,
            len(cells),
        ),
        _queries(factors, held),
        len(attributes),
        len(structures),
        len(integers),
        len(doubles),
        held.structures(_Attribute, attributes),
        held.structures(_Kind, structures),
        held.structures(_Total, integers),
        held.structures(_Doubles, doubles),
    )
    if not loaded.headrace_fold(ctypes.byref(request), widest() if width is None else width):
        raise MemoryError("no memory for the bitmaps of a block")
    return counted, sums


def _attribute(keys: np.ndarray, table: np.ndarray | None, cuts: int, held: Arrays) -> _Attribute:
    if table is None:
        return _Attribute(None, None, held.pointer(keys, np.uint32), cuts)
    return _Attribute(held.pointer(keys, np.uint16), held.pointer(table, np.uint32), None, cuts)


def _counted(kind: Kind, shape: tuple[int, int]) -> Counted:
    """The cells of a kind before the first row."""
    if not kind.ends:
        return Counted(np.zeros(shape, np.int64), None, None)
    return Counted(np.zeros(shape, np.int64), np.full(shape, -1, np.int64), np.full(shape, -1, np.int64))


def _queries(factors: Factors, held: Arrays) -> _Queries:
    arrays = (factors.boxes, factors.factors, factors.attributes, factors.starts, factors.bitmaps)
    return _Queries(len(factors.boxes) - 1, *(held.pointer(array, np.int64) for array in arrays))


def _integers(total: Total, into: Sequence[np.ndarray], held: Arrays) -> _Total:
    assert total.slices is not None
    assert total.widths is not None
    return _Total(
        total.kind,
        total.slices.shape[1],
        held.pointer(total.slices, np.uint64),
        held.pointer(total.bases, np.uint64),
        held.pointer(np.minimum(total.widths, min(len(total.slices), 64)), np.int64),
        *(held.pointer(half, np.int64) for half in into),
    )


def _doubles(total: Total, into: Sequence[np.ndarray], held: Arrays) -> _Doubles:
    return _Doubles(total.kind, held.pointer(total.doubles, np.float64), held.pointer(into[0], np.float64))
