"""The search for the combinations of a join's new rows in two phases: first whether each row has a partner in every other side, and
where; then the combinations of the rows that do.

In the first phase the other sides are filters: a row leaves at the first that has no partner for it. In which order they are probed
decides how many probes there are. The second phase searches nothing again: a hop extends combinations by what the first phase has
found for their new row. It takes the sides in the order that makes fewest rows, which is known exactly by then.
Of a sample of the rows that leave, all sides are probed: which of them have no partner, together, is what the choice of an order needs.
Source: Babu (2005), section 5.2.2 (drop probing, then output generation) with the drop profiles of section 4.2.1. All sides are joined
by one key, so every update is that of the root of a star: all orders are possible, and theorem 4.3.1 holds for the first phase.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.adaptive.filters.ordering import UNSETTLED_SHARE, OrderInForce, drops_elsewhere
from headrace.adaptive.joins.output_order import fewest_first
from headrace.dataclass import dataclass
from headrace.observation import ProbeObservation
from headrace.operators.base.group_codes import Ints
from headrace.operators.joins.probing.stems import Bounds, Combinations, Found, Stem
from headrace.operators.rows.sorted_rows import Sorted

SAMPLED: Final = 1024
"""Rows that are sampled together, in few epochs if that is more than the share: a search of few costs more for each.

While an order is not settled, they are as soon as there are so many: then it is.
"""
_CHANCES: Final = 1 << 32
_AT_ONCE: Final = 1 << 18
"""Rows of which the places of all partners are in memory."""
_MIX: Final = 0x9E3779B97F4A7C15

HoldTogether: TypeAlias = Callable[[Ints, Ints], npt.NDArray[np.bool_]]
"""Whether a combination that holds in [at, until] is an answer, or part of one; once false, it stays so with more rows."""


@dataclass(slots=True)
class _Reached:
    """The new rows that reach a side in the first phase, and what was found for them."""

    rows: Ints
    found: Found


@dataclass(slots=True)
class Probing:
    """The search of one side's new rows in the SteMs of the `others`, and what it cost; tuples and lists are by other side.

    `order`: places among the others, and how many rows to sample; with `fixed` the second phase follows the order too. `partners`: from
    the interval in which a new row holds to that of its partners.
    """

    stems: Mapping[int, Stem]
    others: tuple[int, ...]
    order: OrderInForce
    hold_together: HoldTogether
    partners: Callable[[Ints, Ints], Bounds]
    fixed: bool = False
    see: Callable[[Ints, Ints], None] | None = None
    """Takes in new rows in order of their hashes, and how many rows are compared with each and with its combinations."""
    rows: int = 0
    compared: int = 0
    made: int = 0
    sampled: int = 0
    profiled: int = 0
    probed: list[int] = field(init=False)
    dropped: list[int] = field(init=False)
    patterns: dict[int, int] = field(default_factory=dict)
    _work: Ints = field(init=False)
    """Of the new rows that have partners everywhere: how many rows were compared with them."""

    def __post_init__(self) -> None:
        self.probed, self.dropped = [0] * len(self.others), [0] * len(self.others)

    def combinations(self, new: Sorted, side: int) -> Iterator[Combinations]:
        """New rows of a side with rows of all others; a bounded number at a time."""
        if not all(self.stems[other].rows for other in self.others):
            return
        for start in range(0, new.rows, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            at, until, hashes = new.at[part], new.until(part), new.hash[part]
            self.rows += len(at)
            whole, candidates = self._whole(at, until, hashes)
            self._work = np.zeros(len(whole), np.int64)
            if len(whole):
                counts = {other: of_side.counts for other, of_side in candidates.items()}
                order = list(candidates) if self.fixed else fewest_first(counts)
                alone = Combinations(at[whole], until[whole], {side: np.arange(len(whole))})
                for combined in self._extended(alone, candidates, side, order):
                    yield combined.renumbered(side, whole + start)
            if self.see is not None:
                work = np.zeros(len(at), np.int64)
                work[whole] = self._work
                self.see(hashes, work)

    def _whole(self, at: Ints, until: Ints, hashes: Ints) -> tuple[Ints, dict[int, Found]]:
        """The rows that have a partner in every other side, and by side what is found for them."""
        reached = self._probe(at, until, hashes)
        last = reached[-1]
        whole = last.rows[last.found.counts > 0]
        if not len(whole):
            return whole, {}
        ordered = zip((self.others[index] for index in self.order.order), reached, strict=True)
        candidates = {
            other: probe.found
            if len(probe.rows) == len(whole)
            else probe.found.of(np.searchsorted(probe.rows, whole))
            for other, probe in ordered
        }
        return whole, candidates

    def _probe(self, at: Ints, until: Ints, hashes: Ints) -> list[_Reached]:
        """The rows that reach each side, until none does, and what is found for them there."""
        reached, rows = list[_Reached](), np.arange(len(at))
        low, high = all_bounds = self.partners(at, until)
        bounds, keys = (low, high), hashes
        for index in self.order.order:
            candidates = self.stems[self.others[index]].search(bounds, keys)
            reached.append(_Reached(rows, candidates))
            has_partners = candidates.counts > 0
            left = int(np.count_nonzero(has_partners))
            self.probed[index] += len(rows)
            self.dropped[index] += len(rows) - left
            if not left:
                break
            if left < len(rows):
                rows = rows[has_partners]
                bounds, keys = (low[rows], high[rows]), hashes[rows]
        self._sample(reached, all_bounds, hashes)
        return reached

    def _sample(self, reached: Sequence[_Reached], bounds: Bounds, hashes: Ints) -> None:
        """Probe the remaining sides too with a sample of the rows that were dropped; in which epochs there is one follows from the rows.

        Rows are sampled where other sides drop them than was believed, since data have changed.
        """
        share, rows = self.order.share, len(hashes)
        if share and drops_elsewhere(self.order.believed, self.dropped):
            share = UNSETTLED_SHARE
        wanted = min(rows, SAMPLED)
        chance = 1.0 if share >= UNSETTLED_SHARE and wanted == SAMPLED else share * rows / wanted
        if int(bounds[0][0]) * _MIX % _CHANCES >= chance * _CHANCES:
            return
        sample = np.arange(wanted) * rows // wanted
        self.sampled += wanted
        is_dropped = np.zeros((len(sample), len(self.others)), bool)
        gone = np.zeros(len(sample), bool)
        for position, index in enumerate(self.order.order):
            if position < len(reached):
                probe = reached[position]
                here = np.flatnonzero(~gone)
                is_dropped[here, index] = probe.found.counts[np.searchsorted(probe.rows, sample[here])] == 0
            if gone.any():
                again = sample[gone]
                candidates = self.stems[self.others[index]].search(
                    (bounds[0][again], bounds[1][again]), hashes[again]
                )
                is_dropped[gone, index] = candidates.counts == 0
                self.profiled += len(again)
            gone |= is_dropped[:, index]
        bits, counts = np.unique(is_dropped[gone] @ (1 << np.arange(len(self.others))), return_counts=True)
        for code, count in zip(bits.tolist(), counts.tolist(), strict=True):
            self.patterns[code] = self.patterns.get(code, 0) + count

    def _extended(
        self, known: Combinations, candidates: Mapping[int, Found], origin: int, order: Sequence[int]
    ) -> Iterator[Combinations]:
        """The combinations with rows of the sides of an order; `candidates` by the new rows, of side `origin`."""
        if not order:
            yield known
            return
        side, *rest = order
        of_known = candidates[side] if len(known.rows) == 1 else candidates[side].of(known.rows[origin])
        if self.see is not None:
            work = np.bincount(known.rows[origin], of_known.counts, len(self._work))
            self._work += work.astype(np.int64)
        for extended, compared in self.stems[side].extend(known, of_known, side):
            self.compared += compared
            together = extended.where(self.hold_together(extended.at, extended.until))
            self.made += together.count
            if together.count:
                yield from self._extended(together, candidates, origin, rest)

    def observation(self) -> ProbeObservation:
        """What was observed, as it travels in a receipt."""
        return ProbeObservation(
            self.order.order,
            self.rows,
            tuple(self.probed),
            tuple(self.dropped),
            tuple(self.rows * self.stems[other].steps for other in self.others),
            self.compared,
            self.made,
            self.sampled,
            self.profiled,
            self.patterns,
        )
