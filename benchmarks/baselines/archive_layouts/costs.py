"""Costs of archive layouts in blocks written and read, as OSCAR's Table 1 gives them, and the block size from which skipping pays.

`keep` is the share of a block's or a run's rows that a scan wants. An index entry for each block, or for each run, costs `entry`
blocks (20 of 8,192 bytes in the paper, which neglects it).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_EPSILON = 1e-9
"""A share of 0.3 that was computed as 1 - 0.7 is not more than 0.3."""


def strawman_writes(blocks: float, entry: float = 0.0) -> float:
    """The stream itself."""
    return blocks * (1 + entry)


def strawman_reads(keeps: Sequence[float]) -> float:
    """Everything: rows are drawn after reading."""
    return len(keeps)


def copies_writes(blocks: float, copies: Sequence[float], entry: float = 0.0) -> float:
    """OnWriteReplicate: the primary copy, and the share that each other copy has."""
    return blocks * (1 + sum(copies)) * (1 + entry)


def copies_reads(keeps: Sequence[float], copies: Sequence[float]) -> float:
    """OnWriteReplicate: of each block what it is in the nearest finer copy."""
    return sum(copy_for(keep, copies) for keep in keeps)


def copy_for(keep: float, copies: Sequence[float]) -> float:
    """The share of the nearest copy that has at least `keep`; 1, the primary copy, always has.

    >>> copy_for(0.6, (0.75, 0.5, 0.25)), copy_for(0.25, (0.5,)), copy_for(1 - 0.5, (0.5,)), copy_for(0.8, (0.5,))
    (0.75, 0.5, 0.5, 1.0)
    """
    return min((copy for copy in copies if copy >= keep - _EPSILON), default=1.0)


def marked_writes(blocks: float, *, has_copy: bool, by_reference: bool = False, entry: float = 0.0) -> float:
    """OnReadModify: rows go to the stream, and to the copy unless it refers to the stream's files."""
    return blocks * (1 + entry) * (2 if has_copy and not by_reference else 1)


def marked_first_reads(keeps: Sequence[float]) -> float:
    """OnReadModify, the first scan: every block is read, and written if it has a row that is dead now."""
    return len(keeps) + sum(math.ceil(1 - keep - _EPSILON) for keep in keeps)


def marked_reads(keeps: Sequence[float], *, is_vacuumed: bool) -> float:
    """OnReadModify, later scans: all blocks before the vacuum, what is live after it."""
    return sum(keeps) if is_vacuumed else len(keeps)


def random_writes(blocks: float, run_blocks: int, entry: float = 0.0) -> float:
    """RandomizeThenSort: the stream, with an index entry for each run."""
    return blocks * (1 + entry / run_blocks)


def random_reads(keeps: Sequence[float], run_blocks: int, halvings: int = 0) -> float:
    """RandomizeThenSort: of each run as many blocks as hold what is wanted; where the first one is halved so often, parts of it."""
    return sum(_prefix(keep, run_blocks, halvings) for keep in keeps)


def _prefix(keep: float, run_blocks: int, halvings: int) -> float:
    if keep <= 0:
        return 0.0
    share = keep * run_blocks
    if share > 1:
        return math.ceil(share - _EPSILON)
    return min(part for part in (2.0**-number for number in range(halvings + 1)) if part >= share - _EPSILON)


def read_seconds(ranges: float, size: float, seek: float, rate: float) -> float:
    """The time to read `size` bytes in so many ranges: a seek for each range, and the bytes at a rate."""
    return ranges * seek + size / rate


def break_even(seek: float, rate: float) -> float:
    """The number of bytes whose reading takes as long as a seek: to skip fewer does not pay."""
    return seek * rate


def range_read_pays(keep: float, length: float, duration: float, blocks: int) -> bool:
    """Whether random blocks read less than rows in order of time do, for a time of some length.

    A run covers `duration` in every block, so that keep * (length + duration) is read, against length + duration / blocks.
    """
    return keep * (length + duration) < length + duration / blocks
