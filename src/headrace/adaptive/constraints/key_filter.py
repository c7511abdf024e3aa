"""Filter of the keys of spilled rows, by slot: which of some keys have no row among them, from one to three bytes a row.

A Bloom filter in blocks of one word each: a key sets three bits of one of its slot's words, so a look-up reads one word. A slot has a power
of two of words, at least ten bits for each of its rows: about one of 50 keys that are not there, or fewer, is taken for one that is. Filters of
the same slots are united without their rows: the smaller one is repeated.
Source: Babu (2005), section 6.5 (doubtful tuples on disk, with a Bloom filter of their keys in memory).
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass

Ints: TypeAlias = npt.NDArray[np.int64]
Slots: TypeAlias = npt.NDArray[np.int16]
Words: TypeAlias = npt.NDArray[np.uint64]

BITS: Final = 10
"""Bits for each row, at least."""
_WORD: Final = 64
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""Odd numbers that mix the bits of a hash (splitmix64)."""
_BITS_AT: Final = (0, 6, 12)
"""Where a mixed hash has the numbers of its bits in a word; its other bits choose the word."""
_WORD_AT: Final = 18


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """The words of all slots one after the other, and the slot of each, ascending."""

    slots: Slots
    words: Words

    @staticmethod
    def of(hashes: Ints, slots: Slots) -> KeyFilter:
        """The filter of rows with these key hashes and slots."""
        present, of_row, rows = np.unique(slots, return_inverse=True, return_counts=True)
        needed = np.maximum(-(-rows * BITS // _WORD), 1)
        sizes = 1 << np.ceil(np.log2(needed)).astype(np.int64)
        starts = np.cumsum(sizes) - sizes
        words = np.zeros(int(sizes.sum()), np.uint64)
        index, bits = _placed(hashes, starts[of_row], sizes[of_row])
        np.bitwise_or.at(words, index, bits)
        return KeyFilter(np.repeat(present, sizes).astype(np.int16), words)

    def may_have(self, hashes: Ints, slots: Slots) -> npt.NDArray[np.bool_]:
        """Which of some keys, with their slots, may have a row; every one that has is among them."""
        starts = np.searchsorted(self.slots, slots)
        sizes = np.searchsorted(self.slots, slots, "right") - starts
        known = np.flatnonzero(sizes)
        found = np.zeros(len(hashes), bool)
        index, bits = _placed(hashes[known], starts[known], sizes[known])
        found[known] = self.words[index] & bits == bits
        return found

    def united(self, other: KeyFilter) -> KeyFilter:
        """The filter of the rows of both."""
        slots, words = list[Slots](), list[Words]()
        for slot in np.union1d(self.slots, other.slots):
            own, its = (part.words[part.slots == slot] for part in (self, other))
            both = np.zeros(max(len(own), len(its)), np.uint64)
            for part in (own, its):
                both |= np.resize(part, len(both)) if len(part) else both
            slots.append(np.full(len(both), slot, np.int16))
            words.append(both)
        return KeyFilter(np.concatenate(slots), np.concatenate(words)) if slots else self


def _placed(hashes: Ints, starts: Ints, sizes: Ints) -> tuple[Ints, Words]:
    """The word of each key, in its slot's `sizes` words from `starts` on, and the bits that it sets there."""
    mixed = hashes.view(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed ^= mixed >> np.uint64(31)
    bits = np.zeros(len(hashes), np.uint64)
    for place in _BITS_AT:
        bits |= np.uint64(1) << ((mixed >> np.uint64(place)) & np.uint64(_WORD - 1))
    index = (mixed >> np.uint64(_WORD_AT)).view(np.int64) & (sizes - 1)
    return starts + index, bits
