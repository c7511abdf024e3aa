"""The search for combinations in one phase, as MJoin has it: each hop searches a SteM for every combination that the hops before have
made, so an order decides how many rows are made as well as how many are searched for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from headrace.operators.base.group_codes import Ints
from headrace.operators.joins import window_join
from headrace.operators.joins.probing.stems import Combinations
from headrace.operators.joins.probing.two_phases import Probing
from headrace.operators.rows.sorted_rows import Sorted


@dataclass(slots=True)
class OnePhase(Probing):
    """`probed` counts combinations."""

    def combinations(self, new: Sorted, side: int) -> Iterator[Combinations]:
        """New rows of a side with rows of all others."""
        if all(self.stems[other].rows for other in self.others):
            self.rows = new.rows
            new_rows = Combinations(new.at, new.until(), {side: np.arange(new.rows)})
            yield from self._hops(new_rows, new.hash, side, self.order.order)

    def _hops(
        self, known: Combinations, hashes: Ints, origin: int, order: Sequence[int]
    ) -> Iterator[Combinations]:
        if not order:
            yield known
            return
        index, *rest = order
        side = self.others[index]
        self.probed[index] += known.count
        matches = self.stems[side].search(self.partners(known.at, known.until), hashes[known.rows[origin]])
        self.dropped[index] += int(np.count_nonzero(matches.counts == 0))
        for extended, compared in self.stems[side].extend(known, matches, side):
            self.compared += compared
            together = extended.where(self.hold_together(extended.at, extended.until))
            self.made += together.count
            if together.count:
                yield from self._hops(together, hashes, origin, rest)


@contextmanager
def one_phase() -> Iterator[None]:
    """Inside the block all joins search in one phase."""
    original = window_join.Probing
    window_join.Probing = OnePhase
    try:
        yield
    finally:
        window_join.Probing = original
