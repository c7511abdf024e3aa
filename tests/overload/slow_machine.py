"""A machine on which rows take as long as a test defines, whatever the real one is: a hub flooded on a simulated clock."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import EpochFailed
from headrace.observation import WorkObservation
from headrace.runtime.epoch import engine
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.epoch.supervisor import Retries
from headrace.runtime.hub.hub import Hub
from headrace.runtime.messages.task_messages import ScanMessage, ScanReceipt, StateMessage, StateReceipt
from headrace.time import MINUTE, SECOND

START = 1_700_000_000 * SECOND
READ, CHEAP, FOLD = 1e-4, 1e-4, 1.4e-3
"""Seconds for reading a row, and for each query that is given it, if it is a cheap one or not."""


class SlowMachine(LocalExecutor):
    """Runs everything really; `seconds` passes as rows cost, and so do the receipts. The next `failures` jobs fail.

    `cheap` are operators; rows that are sketched take `sketch` seconds each. While `pushing` is set it is the clock: rows arrive during the epoch before they are pushed.
    """

    def __init__(self) -> None:
        self.seconds, self.failures = 0.0, 0
        self.cheap, self.sketching = frozenset[str](), frozenset[str]()
        self.pushing: float | None = None
        self.sketch = CHEAP

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        chosen = {name: shares for message in scans for name, shares in message.shares.items()}
        self.sketching = frozenset(name for name, shares in chosen.items() if shares[0] == 0)
        receipts = super().run(scans, states)
        if self.failures:
            self.failures -= 1
            raise EpochFailed("lost an executor")
        return [
            replace(each, work={}, scans=tuple(self._costed(scan) for scan in each.scans if each.task == 0))
            for each in receipts
        ]

    def _costed(self, scan: ScanReceipt) -> ScanReceipt:
        work = {}
        for name, done in scan.work.items():
            kind, _, operator = name.partition(" ")
            seconds = done.rows_in * (READ if kind == "read" else self._fold(operator))
            work[name] = WorkObservation(done.rows_in, done.rows_out, round(seconds * 1e9))
            self.seconds += seconds
        return replace(scan, work=work)

    def _fold(self, operator: str) -> float:
        if operator in self.cheap:
            return CHEAP
        return self.sketch if operator in self.sketching else FOLD

    def now(self) -> int:
        """The clock."""
        return START + round((self.seconds if self.pushing is None else self.pushing) * SECOND)


@contextmanager
def flooded_hub(path: Path, machine: SlowMachine, patch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The home on that machine."""
    patch.setattr(engine, "stopwatch", SimpleNamespace(perf_counter=lambda: machine.seconds))
    retries = Retries(waits=(0.0, 0.0))
    with Hub(path, machine, clock=machine.now, tasks=1, retries=retries) as hub:
        yield hub


def batch(number: int, begin: float, end: float, rate: float) -> list[dict[str, Any]]:
    """Rows that arrive from one time to another: large values are rare."""
    made = random.Random(number)
    count = int((end - begin) * rate)
    return [
        {
            "at": START - MINUTE + round((begin + (end - begin) * each / count) * SECOND),
            "k": made.randrange(2),
            "v": made.choice((1, 2, 3, 4, 50, 60, 90)),
        }
        for each in range(count)
    ]
