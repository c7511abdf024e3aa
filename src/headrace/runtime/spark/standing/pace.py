"""The pace of epochs: which are small, and whether they come so often that standing tasks are worth their cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.dataclass import dataclass
from headrace.runtime.messages.task_messages import ScanMessage

SMALL_ROWS: Final = 400_000
"""Rows of a small epoch, as estimated: half of the cores read them in less time than a job takes to start."""
EASY_ROWS: Final = 100_000
"""Rows of an epoch that takes little besides them: up to here one scan task reads them all."""
_OFTEN_SECONDS: Final = 2.0
_IN_A_ROW: Final = 3
_LONG_SECONDS: Final = 0.5
"""An epoch that takes longer gains more from all cores than it loses by a job."""
_FIRST_WAIT: Final = 5.0
_LONGEST_WAIT: Final = 300.0
_RECOVERED_AFTER: Final = 100
"""Epochs in standing tasks after which earlier failures count no more."""


def are_few(rows: int) -> bool:
    """Whether an epoch of so many rows, as estimated, is small."""
    return rows <= SMALL_ROWS


def is_small(scans: Sequence[ScanMessage]) -> bool:
    """Whether an epoch's input is small: few rows that arrived or a slice of an archive, and not panes of other queries."""
    return all(
        are_few(scan.weight) and all(split.pane_backfill is None for split in scan.splits) for scan in scans
    )


@dataclass(slots=True)
class Pace:
    """Epochs and failures so far. Times are seconds of a monotonic clock."""

    in_a_row: int = 0
    """Small epochs, each soon after the one before."""
    ended: float = float("-inf")
    not_before: float = float("-inf")
    """After a failure standing tasks are not started before."""
    failures: int = 0
    successes: int = 0
    was_long: bool = False
    """Whether the last epoch took long, in spite of few rows."""

    def is_due(self, now: float) -> bool:
        """Whether standing tasks should be started with the small epoch that begins now."""
        often = now - self.ended <= _OFTEN_SECONDS
        return often and self.in_a_row + 1 >= _IN_A_ROW and now >= self.not_before

    def saw(self, *, small: bool, began: float, ended: float) -> None:
        """Count an epoch."""
        often = began - self.ended <= _OFTEN_SECONDS
        self.was_long = ended - began > _LONG_SECONDS
        small = small and not self.was_long
        self.in_a_row = (self.in_a_row + 1 if often else 1) if small else 0
        self.ended = ended

    def succeeded(self) -> None:
        """Count an epoch in standing tasks."""
        self.successes += 1
        if self.successes >= _RECOVERED_AFTER:
            self.failures = 0

    def failed(self, now: float) -> None:
        """Count standing tasks that could not start or were lost: each in a row doubles the wait before the next ones."""
        self.not_before = now + min(_LONGEST_WAIT, _FIRST_WAIT * 2**self.failures)
        self.failures, self.successes, self.in_a_row = self.failures + 1, 0, 0
