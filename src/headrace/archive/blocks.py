"""Random blocks of an archive run: the block of each row, by a hash of its position (also used to shed rows); the parts in
which a run is stored, first the samples that halve the first block again and again; how many blocks hold a share of the rows.

Each block is a uniform random sample of the run, and
the first n blocks of every run are one sample of the whole stream, n of all blocks large (OSCAR, "randomize, then sort").
The paper draws a block for each row, which a task that runs again would draw differently; here a hash of the row's position,
seeded by the stream, decides. So the same rows are in the same blocks whatever the cuts, blocks of small runs merge into
those of large ones, and samples of streams that share no seed are independent. Blocks differ in size by about the square
root of it. With the option `blocksBy` a hash of a column takes the place of the position, and all streams have one seed: a block
is then a sample of keys, with all of their rows, and the same in every stream.
"""

from __future__ import annotations

import zlib
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.archive.runs import Ints
from headrace.dataclass import dataclass

MOST: Final = 1024
SEED_OF_KEYS: Final = 0
"""The seed of blocks that are samples of keys."""
LEAST_ROWS: Final = 2048
"""Rows of the smallest part of a run, at least, on average: a quarter of the break-even, the 7,000 to 10,000 rows that take as long to read as
a row group takes without rows (`python -m benchmarks oscar-skips`). Of smaller parts the overhead is nearly all. What a run is made of is in its file.
"""
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)


def seed_of(stream: str) -> int:
    """The seed of a stream, by its name without case."""
    return zlib.crc32(stream.lower().encode())


def seed_for(stream: str, blocks_by: str | None) -> int:
    """The seed of a stream's blocks: one for all streams where blocks are samples of keys."""
    return seed_of(stream) if blocks_by is None else SEED_OF_KEYS


def hashes_of(position: Ints, seed: int) -> npt.NDArray[np.uint64]:
    """The hash of each row: 64 bits, by its position and the stream alone (splitmix64)."""
    mixed = position.astype(np.uint64) + np.uint64((seed * int(_STEP)) & (2**64 - 1))
    mixed = (mixed + _STEP) & np.uint64(2**64 - 1)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def blocks_of(position: Ints, seed: int, blocks: int) -> npt.NDArray[np.int16]:
    """The block, from 0, of each row: the high bits of its hash, so that twice as many blocks halve each.

    >>> blocks_of(np.arange(6), 7, 4).tolist() == (blocks_of(np.arange(6), 7, 8) // 2).tolist()
    True
    """
    high = hashes_of(position, seed) >> np.uint64(32)
    return (high * np.uint64(blocks) >> np.uint64(32)).astype(np.int16)


@dataclass(frozen=True, slots=True)
class Blocks:
    """The equal random parts of the runs of one stream."""

    seed: int
    count: int

    def of(self, position: Ints) -> npt.NDArray[np.int16]:
        """The block of each row."""
        return blocks_of(position, self.seed, self.count)

    def within(self, position: Ints, share: float) -> npt.NDArray[np.bool_]:
        """Which rows are in the first blocks, of however many, that have a share of the rows: their hash is below it.

        >>> position, blocks = np.arange(99), Blocks(7, 8)
        >>> bool((blocks.within(position, 3 / 8) == (blocks.of(position) < 3)).all())
        True
        """
        below: npt.NDArray[np.bool_] = (hashes_of(position, self.seed) >> np.uint64(32)) < share * 2.0**32
        return below

    def parts(self, rows: int) -> Parts:
        """The parts of a run of so many rows."""
        return Parts.of(self.seed, self.count, rows)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a run, in the order in which they are stored: the first ones hold the rows with the least hashes.

    The first block is cut `halvings` times: into its first 1/2^halvings, then as much again, then twice as much, …
    """

    seed: int
    blocks: int
    halvings: int = 0

    @staticmethod
    def of(seed: int, blocks: int, rows: int) -> Parts:
        """The parts of a run of so many rows."""
        return Parts(seed, blocks, max(0, (rows // blocks // LEAST_ROWS).bit_length() - 1))

    def number(self, position: Ints) -> Ints:
        """The part of each row, from 0."""
        high = hashes_of(position, self.seed) >> np.uint64(32)
        fine = (high * np.uint64(self.blocks << self.halvings) >> np.uint64(32)).astype(np.int64)
        block = fine >> self.halvings
        _, halving = np.frexp(np.where(block == 0, fine, 0).astype(np.float64))
        number: Ints = np.where(block == 0, halving, self.halvings + block).astype(np.int64)
        return number

    def share(self, number: int) -> Fraction:
        """The share of the run that the parts up to this one hold, on average."""
        if number <= self.halvings:
            return Fraction(2**number, self.blocks << self.halvings)
        return Fraction(number - self.halvings + 1, self.blocks)


def blocks_for(fraction: float, blocks: int) -> int:
    """How many blocks hold at least that fraction of the rows, on average: 10 blocks at 0.3 are 3, not 4.

    >>> blocks_for(1 - 0.7, 10), blocks_for(0.31, 10), blocks_for(0.0, 10)
    (3, 4, 0)
    """
    return int(np.ceil(blocks * fraction - 1e-9))
