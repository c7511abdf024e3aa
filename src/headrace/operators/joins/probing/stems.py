"""SteMs: the sorted rows of each side of a join, the search in one for the partners of new rows, and the extension of
combinations by rows that were found.

A SteM is one side's state: pieces (runs, and this epoch's rows) in order of (key hash, time), in which all other sides
search. A combination is one row of each of some sides, of one key hash, with the instants at which all of them hold. New
rows of a side are combinations of one; each hop extends them by the rows of one more SteM. No combination is stored.
Sources: SteMs (Raman, Deshpande, Hellerstein 2003) and MJoin (Viglas, Naughton, Burger 2003), for columns of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints, flat, picked
from headrace.operators.rows.sorted_rows import Sorted, bisected, portions, spread
from headrace.time import BEGINNING, FOREVER, Duration

_SPARSE: Final = 4
"""Rows search a piece one by one if it has more rows than so many times theirs."""
_FEW: Final = 1 << 10
"""Rows of a piece that are searched whatever their times: to compare these costs as much."""
_WIDEST: Final = 1 << 62
_CALL: Final = 4
"""Steps of a bisection that a search in a piece takes besides."""

Bounds: TypeAlias = tuple[Ints, Ints]
"""For each of some rows: a partner holds until the first at least, and begins at the second at most."""


@dataclass(frozen=True, slots=True)
class Combinations:
    """One row of each of some sides, by its number in the side's SteM; they hold together in [at, until]."""

    at: Ints
    until: Ints
    rows: Mapping[int, Ints]

    @property
    def count(self) -> int:
        """The number of combinations."""
        return len(self.at)

    def where(self, keep: npt.NDArray[np.bool_]) -> Combinations:
        """Some of them."""
        if keep.all():
            return self
        rows = {side: numbers[keep] for side, numbers in self.rows.items()}
        return Combinations(self.at[keep], self.until[keep], rows)

    def renumbered(self, side: int, numbers: Ints) -> Combinations:
        """The same, of which the row i of a side is called `numbers[i]`."""
        return Combinations(self.at, self.until, {**self.rows, side: numbers[self.rows[side]]})


@dataclass(frozen=True, slots=True)
class Found:
    """Where the rows of a SteM are that some rows may be joined with: in each piece `matches` rows from `low` on, for each row.

    `counts` is their number, of all pieces.
    """

    low: tuple[Ints, ...]
    matches: tuple[Ints, ...]
    counts: Ints

    def of(self, rows: Ints) -> Found:
        """What was found for some of the rows."""
        low, matches = (tuple(of_piece[rows] for of_piece in pieces) for pieces in (self.low, self.matches))
        return Found(low, matches, self.counts[rows])


@dataclass(frozen=True, slots=True)
class Stem:
    """The rows of one side: `pieces`, whose rows are numbered one after the other. No row holds longer than `longest`."""

    pieces: tuple[Sorted, ...]
    longest: Duration | None

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def starts(self) -> Ints:
        """The number of the first row of each piece, and of all rows."""
        return np.cumsum([0, *(piece.rows for piece in self.pieces)])

    @property
    def steps(self) -> int:
        """The steps of the search for one row: those of a bisection of each piece, as if all had the same size."""
        pieces = max(len(self.pieces), 1)
        return pieces * (_CALL + (self.rows // pieces).bit_length())

    def search(self, bounds: Bounds, hashes: Ints) -> Found:
        """The rows that may be joined with rows of these key hashes; a superset of those that are."""
        overlaps = (_overlapping(bounds, hashes, piece, self.longest) for piece in self.pieces)
        low, matches = zip(*overlaps, strict=True)
        return Found(low, matches, matches[0] if len(matches) == 1 else np.sum(matches, axis=0))

    def extend(self, known: Combinations, candidates: Found, side: int) -> Iterator[tuple[Combinations, int]]:
        """Combinations with each of the rows that were found for them in this SteM, of `side`, and that hold with them; and how many
        rows were compared.
        """
        for start, stop in portions(candidates.counts):
            yield self._portion(known, candidates.low, candidates.matches, slice(start, stop), side)

    def _portion(
        self, combinations: Combinations, low: Sequence[Ints], matches: Sequence[Ints], rows: slice, side: int
    ) -> tuple[Combinations, int]:
        """The extensions of some combinations, and the number of rows that were compared."""
        parts, candidates = list[Combinations](), 0
        for start, piece, first, count in zip(self.starts.tolist(), self.pieces, low, matches, strict=False):
            index, row = spread(first, count, rows.start, rows.stop)
            candidates += len(row)
            if not len(row):
                continue
            at = np.maximum(combinations.at[index], piece.at[row])
            until = np.minimum(combinations.until[index], piece.until(row))
            numbers = {other: known[index] for other, known in combinations.rows.items()}
            parts.append(Combinations(at, until, {**numbers, side: row + start}).where(at <= until))
        return _together(parts, [*combinations.rows, side]), candidates

    def times(self, rows: Ints) -> Ints:
        """The event times of rows by their numbers."""
        if len(self.pieces) == 1:
            return self.pieces[0].at[rows]
        piece_of, times = np.searchsorted(self.starts, rows, side="right") - 1, np.empty(len(rows), np.int64)
        for number, (piece, start) in enumerate(zip(self.pieces, self.starts.tolist(), strict=False)):
            of_piece = piece_of == number
            times[of_piece] = piece.at[rows[of_piece] - start]
        return times

    def columns(self, names: Sequence[str], rows: Ints) -> dict[str, pa.Array]:
        """Columns of rows by their numbers. The cost follows these rows, not those that are stored."""
        if len(self.pieces) == 1:
            return taken(self.pieces[0].table, names, rows)
        piece_of = np.searchsorted(self.starts, rows, side="right") - 1
        order = np.argsort(piece_of, kind="stable")
        edges = np.searchsorted(piece_of[order], np.arange(len(self.pieces) + 1))
        inverse = np.empty(len(rows), np.int64)
        inverse[order] = np.arange(len(rows))
        chosen = [
            taken(piece.table, names, rows[order[edges[number] : edges[number + 1]]] - start)
            for number, (piece, start) in enumerate(zip(self.pieces, self.starts.tolist(), strict=False))
        ]
        return {name: picked(pa.concat_arrays([part[name] for part in chosen]), inverse) for name in names}


def _overlapping(bounds: Bounds, hashes: Ints, piece: Sorted, longest: Duration | None) -> tuple[Ints, Ints]:
    """For each row the first row of a piece that may hold with it, and the number of rows from there on.

    Rows that are a part of many have neighbouring hashes, since these are in order: so only a part of the piece is searched.
    """
    none = np.zeros(len(hashes), np.int64)
    if not len(hashes):
        return none, none
    start = int(piece.hash.searchsorted(hashes.min()))
    stop = int(piece.hash.searchsorted(hashes.max(), "right"))
    hash_, at = piece.hash[start:stop], piece.at[start:stop]
    if not len(at) or (len(at) > _FEW and _is_of_other_times(bounds, at, longest)):
        return none, none
    ranges = _by_rank(bounds, hashes, hash_, at, longest) if len(hashes) * _SPARSE >= len(at) else None
    low, matches = _by_bisection(bounds, hashes, hash_, at, longest) if ranges is None else ranges
    return low + start, matches


def _by_bisection(
    bounds: Bounds, hashes: Ints, hash_: Ints, at: Ints, longest: Duration | None
) -> tuple[Ints, Ints]:
    """The same in rows of ascending (hash, time), each searched by itself."""
    held, latest = bounds
    low, last = hash_.searchsorted(hashes), hash_.searchsorted(hashes, "right")
    if longest is not None:
        low = bisected(at, low, last, held - longest, after=False)
    high = last if (latest == FOREVER).all() else bisected(at, low, last, latest, after=True)
    return low, np.maximum(high - low, 0)


def _is_of_other_times(bounds: Bounds, at: Ints, longest: Duration | None) -> bool:
    """Whether all rows of these times ended before, or begin after, those of any of some rows."""
    held, latest = bounds
    if int(latest.max(initial=BEGINNING)) < int(at.min()):
        return True
    return longest is not None and int(at.max()) + longest < int(held.min(initial=FOREVER))


def _by_rank(
    bounds: Bounds, hashes: Ints, hash_: Ints, at: Ints, longest: Duration | None
) -> tuple[Ints, Ints] | None:
    """The same, where it pays to walk through the rows: their (hash, time) become one ascending integer.

    None if that has no room in 64 bits.
    """
    begins = np.concatenate([[True], hash_[1:] != hash_[:-1]])
    starts, least, most = begins.nonzero()[0], int(at.min()), int(at.max())
    known, span = hash_[starts], most - least + 2
    if len(known) * span >= _WIDEST:
        return None
    rank = np.minimum(_places(known, hashes), len(known) - 1)
    base, (held, latest) = rank * span, bounds
    all_hold = longest is None or int(held.max()) - longest <= least
    all_began = int(latest.min()) >= most
    keys = base
    if not (all_hold and all_began):
        keys = (np.cumsum(begins) - 1) * span + (at - least)
    if all_hold:
        first = starts[rank]
    else:
        first = keys.searchsorted(base + np.clip(held - (longest or 0), least, most + 1) - least)
    if all_began:
        last = np.append(starts[1:], len(at))[rank]
    else:
        last = keys.searchsorted(base + np.minimum(latest, most) - least, side="right")
    return first, np.where(known[rank] == hashes, np.maximum(last - first, 0), 0)


def _places(known: Ints, hashes: Ints) -> Ints:
    """Where each hash is, or would be, in an ascending column; equal neighbours are searched once."""
    changes = np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)]
    positions: Ints = known.searchsorted(hashes[changes])
    return positions if len(positions) == len(hashes) else positions[np.cumsum(changes) - 1]


def _together(parts: Sequence[Combinations], sides: Sequence[int]) -> Combinations:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        none = np.empty(0, np.int64)
        return Combinations(none, none, dict.fromkeys(sides, none))
    at, until = (np.concatenate([getattr(part, name) for part in parts]) for name in ("at", "until"))
    return Combinations(
        at, until, {side: np.concatenate([part.rows[side] for part in parts]) for side in sides}
    )


def taken(table: pa.Table, names: Sequence[str], rows: Ints) -> dict[str, pa.Array]:
    """Some rows of a table, column by column."""
    if len(rows) > _FEW:
        return {name: picked(flat(table.column(name)), rows) for name in names}
    few = pa.array(rows)
    return {name: flat(table.column(name)).take(few) for name in names}
