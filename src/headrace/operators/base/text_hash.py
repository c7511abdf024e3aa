"""Stable 64-bit hashes of texts: the same in every process and version, since slots of state are found by them.

SipHash-2-4 with a fixed key, then the finaliser of splitmix64: what `pandas.util.hash_array` computes. pandas hashes columns; it is
imported with the first of them, because that takes as long as importing numpy and Arrow. A single name needs no pandas.
Source: Aumasson and Bernstein, SipHash: a fast short-input PRF (INDOCRYPT 2012), section 2.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

_KEY: Final = b"0123456789123456"
_START: Final = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_MASK: Final = (1 << 64) - 1


def hashes_of_texts(texts: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """The hash of each of an array of objects: texts, or bytes."""
    from pandas.util import hash_array  # noqa: PLC0415 - with the first column of texts

    hashes: npt.NDArray[np.uint64] = hash_array(texts, categorize=False)
    return hashes


def hash_of_text(text: str) -> int:
    """The same of one text, without pandas.

    >>> hash_of_text("dear") == int(hashes_of_texts(np.array(["dear"], object))[0])
    True
    """
    mixed = _siphash(text.encode())
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
    return mixed ^ mixed >> 31


def _siphash(data: bytes) -> int:
    even, odd = int.from_bytes(_KEY[:8], "little"), int.from_bytes(_KEY[8:], "little")
    a, b, c, d = _START[0] ^ even, _START[1] ^ odd, _START[2] ^ even, _START[3] ^ odd
    whole = len(data) & ~7
    last = int.from_bytes(data[whole:], "little") | (len(data) & 255) << 56
    for word in (*(int.from_bytes(data[at : at + 8], "little") for at in range(0, whole, 8)), last):
        a, b, c, d = _rounds(2, a, b, c, d ^ word)
        a ^= word
    a, b, c, d = _rounds(4, a, b, c ^ 255, d)
    return a ^ b ^ c ^ d


def _rounds(number: int, a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    for _ in range(number):
        a, c = a + b & _MASK, c + d & _MASK
        b, d = _rotated(b, 13) ^ a, _rotated(d, 16) ^ c
        a, c = _rotated(a, 32) + d & _MASK, c + b & _MASK
        b, d = _rotated(b, 17) ^ c, _rotated(d, 21) ^ a
        c = _rotated(c, 32)
    return a, b, c, d


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 64 - bits) & _MASK
