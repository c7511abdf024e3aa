"""Lower bounds of the bits of any method that counts the ones of a window, from how many streams it has to distinguish.

A window of N instants is cut, from its newest end, into blocks of B, 2B, 4B, ... instants, B the root of N * k, and block i into B
parts of 2^i; k/4 parts of each block are filled with ones. While a window of zeros follows, any two such streams have at some instant
counts that differ by more than the error 1/k allows, so whatever counts them is in different states: at least the logarithm of
their number in bits.
Source: Datar, Gionis, Indyk, Motwani (2001), theorems 2 to 4. Repaired: the *floor* of lg(N/B) blocks fit into a window, the ceiling
does not; and what may fail with chance d distinguishes (1 - d) of the streams, so lg(1 - d), which is not positive, is *added*.
"""

from __future__ import annotations

from math import comb, isqrt, log2


def block_length(window: int, k: int) -> int:
    """B, the length of the newest block."""
    return max(isqrt(window * k), 1)


def blocks(window: int, k: int) -> int:
    """How many blocks fit: their lengths B, 2B, 4B, ... add up to at most the window."""
    return max((window // block_length(window, k)).bit_length() - 1, 0)


def streams(window: int, k: int) -> int:
    """The number of streams of which any two must be distinguished; `k` is at least 4."""
    return comb(block_length(window, k), k // 4) ** blocks(window, k)


def least_bits(window: int, k: int, failing: float = 0.0) -> float:
    """Bits below which no counting within 1/k of the truth is possible that may fail with chance `failing`, below 1."""
    return log2(streams(window, k)) + log2(1 - failing)
