"""Scanner of rows of two kinds: marked rows and all others, each folded by a scanner of its own, and the partials of marked rows in a
section of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Scanned, Scanner

OPEN_PANES: Final = "open0"
"""The section of the partials of a pane aggregate that has one store."""


@dataclass(slots=True)
class DividedScanner:
    """Folds rows by `others` and `marked`; the deltas of `marked` are in `section`.

    `marks`: of each row of a batch, whether it is marked; None where no row is.
    """

    others: Scanner
    marked: Scanner
    section: str
    marks: Callable[[Batch], npt.NDArray[np.bool_] | None]

    def add(self, batch: Batch) -> None:
        """Fold a batch."""
        marks = self.marks(batch)
        if marks is None:
            self.others.add(batch)
            return
        for scanner, is_its in ((self.others, ~marks), (self.marked, marks)):
            if is_its.all():
                scanner.add(batch)
            elif is_its.any():
                scanner.add(batch.where(is_its))

    def finish(self) -> Scanned:
        """The deltas of both."""
        others, marked = self.others.finish(), self.marked.finish()
        deltas = dict(others.deltas)
        if OPEN_PANES in marked.deltas:
            deltas[self.section] = marked.deltas[OPEN_PANES]
        return Scanned(
            deltas,
            (*others.rejected, *marked.rejected),
            others.rows_in + marked.rows_in,
            others.rows_kept + marked.rows_kept,
            others.groups + marked.groups,
            others.sparse_groups + marked.sparse_groups,
        )
