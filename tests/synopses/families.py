"""Streams of ones and zeros that are hard to count over a window, as the instants that have a one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from headrace.synopses.arrays import Ints

Family = Callable[[int, int, int, np.random.Generator], Ints]
"""(elements, window, k, random numbers) to the number of ones at each element."""


def stress(elements: int, window: int, k: int, random: np.random.Generator) -> Ints:
    """The family of the lower bound: blocks of B, 2B, 4B, … from right to left, B = sqrt(window * k), block i cut into B parts of
    2^i, k/4 of them full of ones; then a window of zeros. Any two of these must be distinguished."""
    base = max(int((window * k) ** 0.5), 1)
    parts: list[Ints] = []
    level = 0
    while sum(map(len, parts)) < elements and level < 20:
        full = random.choice(base, min(max(k // 4, 1), base), replace=False)
        block = np.zeros((base, 1 << level), np.int64)
        block[full] = 1
        parts.insert(0, block.ravel())
        level += 1
    bits = np.concatenate(parts)[-(elements * 2 // 3) :]
    return np.r_[bits, np.zeros(elements - len(bits), np.int64)]


def _coins(chance: float) -> Family:
    return lambda elements, window, k, random: (random.random(elements) < chance).astype(np.int64)


def _bursts(elements: int, window: int, k: int, random: np.random.Generator) -> Ints:
    return ((np.arange(elements) // max(window // 7, 1)) % 3 == 0).astype(np.int64)


def _then_none(elements: int, window: int, k: int, random: np.random.Generator) -> Ints:
    return (np.arange(elements) < elements // 2).astype(np.int64)


def _sums(elements: int, window: int, k: int, random: np.random.Generator) -> Ints:
    """Values of every magnitude, as SUM takes them: most are small, some near 2^20."""
    return np.where(
        random.random(elements) < 0.3, 0, (2.0 ** random.uniform(0, 20, elements)).astype(np.int64)
    )


def _growing(elements: int, window: int, k: int, random: np.random.Generator) -> Ints:
    """The lower bound of SUM: k/4 elements of 2^i in block i, the great ones first."""
    values = np.zeros(elements, np.int64)
    for block, part in enumerate(np.array_split(np.arange(elements), 16)):
        values[random.choice(part, min(max(k // 4, 1), len(part)), replace=False)] = 1 << (15 - block)
    return values


FAMILIES: Mapping[str, Family] = {
    "all ones": _coins(1.1),
    "half": _coins(0.5),
    "rare": _coins(0.02),
    "bursts": _bursts,
    "ones then zeros": _then_none,
    "the lower bound's": stress,
    "sums": _sums,
    "the lower bound's of sums": _growing,
}
