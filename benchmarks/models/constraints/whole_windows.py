"""The state of a multiway join of whole windows, which knows no constraints: rows, and placeholders of rows that fail their
filter, so that windows of rows have their size.

Source: Babu (2005), section 6.2 (SWJ).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from benchmarks.models.constraints.synopsis import Arrivals, Bools
from headrace.dataclass import dataclass


@dataclass(slots=True)
class WholeWindows:
    """The rows that a join of whole windows stores: those of the last `window` that pass, and a placeholder for each other one."""

    windows: Mapping[str, int]
    passed: dict[str, Bools] = field(default_factory=dict)

    def process(self, batches: Sequence[Arrivals]) -> None:
        """Take in the next arrivals."""
        for batch in batches:
            before = self.passed.get(batch.stream, np.empty(0, bool))
            self.passed[batch.stream] = np.concatenate([before, batch.passes])[-self.windows[batch.stream] :]

    @property
    def rows_held(self) -> int:
        """The rows with columns."""
        return sum(int(np.count_nonzero(passed)) for passed in self.passed.values())

    @property
    def placeholders(self) -> int:
        """The rows of which only the place in the window is stored."""
        return sum(int(np.count_nonzero(~passed)) for passed in self.passed.values())
