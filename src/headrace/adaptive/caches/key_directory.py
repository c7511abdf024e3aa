"""The keys that a cache holds, direct-mapped: each key has one bucket, and takes it from the key that is there; buckets are
granted and evicted by page.

A key is a hash of 64 bits. What belongs to the keys is stored elsewhere; the directory shows which of it counts.
Source: Babu (2005), section 5.4 (direct-mapped replacement) and 5.6 (pages).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.adaptive.filters.order_cost import Bools, Ints
from headrace.dataclass import dataclass

PAGE: Final = 64
"""Buckets of a page."""
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(slots=True)
class KeyDirectory:
    """`1 << bits` buckets, on pages of which none is granted at first."""

    bits: int
    keys: Ints = field(init=False)
    used: Bools = field(init=False)
    granted: Bools = field(init=False)

    def __post_init__(self) -> None:
        self.clear()
        self.granted = np.zeros(max(1, (1 << self.bits) // PAGE), bool)

    def clear(self) -> None:
        """Remove all keys; pages stay granted."""
        self.keys, self.used = np.zeros(1 << self.bits, np.int64), np.zeros(1 << self.bits, bool)

    def buckets(self, keys: Ints) -> npt.NDArray[np.int64]:
        """The bucket of each key."""
        mixed = (keys.view(np.uint64) * _MIX) >> np.uint64(64 - self.bits)
        return mixed.astype(np.int64)

    def present(self, keys: Ints) -> Bools:
        """Which of the keys are held."""
        buckets = self.buckets(keys)
        held: Bools = self.used[buckets] & (self.keys[buckets] == keys)
        return held

    def admit(self, keys: Ints, need_page: Callable[[], bool]) -> tuple[Bools, Ints]:
        """Different keys that are absent take their buckets: which of them are held now, and the keys that were there.

        Of two with one bucket the last is held; none of those whose page is not granted.
        """
        buckets = self.buckets(keys)
        for page in np.unique(buckets // PAGE).tolist():
            if not self.granted[page]:
                self.granted[page] = need_page()
        allowed = self.granted[buckets // PAGE]
        allowed_buckets = buckets[allowed]
        evicted = np.unique(self.keys[allowed_buckets[self.used[allowed_buckets]]])
        self.keys[allowed_buckets], self.used[allowed_buckets] = keys[allowed], True
        return allowed & (self.keys[buckets] == keys), evicted

    def evict_page(self, page: int) -> Ints:
        """Remove the keys of a page, which stays granted; returns them."""
        here = slice(page * PAGE, (page + 1) * PAGE)
        evicted = self.keys[here][self.used[here]]
        self.used[here] = False
        return evicted

    def give_back_page(self) -> Ints:
        """Give back the granted page with the fewest keys; returns the keys that were there."""
        fullness = np.add.reduceat(self.used.astype(np.int64), np.arange(0, len(self.used), PAGE))
        page = int(np.argmin(np.where(self.granted, fullness, PAGE + 1)))
        self.granted[page] = False
        return self.evict_page(page)
