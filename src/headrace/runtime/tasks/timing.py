"""How long does each piece of shared work take? The clock stands here, around the kernels; in them there is none.

A reading of it costs a tenth of a microsecond, once a batch for each fold and once an epoch for each state: nothing
beside the work itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns

import pyarrow as pa

from headrace.observation import WorkObservation
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Operator
from headrace.operators.families.harvest import ScanOutput
from headrace.operators.sharing.scan_sharing import ScanGroup, scan_groups


@dataclass(slots=True)
class Timed:
    """A folding, and what it took: `adding` rows, and `finishing`, in nanoseconds."""

    scan_group: ScanGroup
    adding: int = 0
    finishing: int = 0
    rows_in: int = 0
    rows_out: int = 0

    def add(self, batch: Batch) -> None:
        """Take in a batch of accepted rows."""
        started = perf_counter_ns()
        self.scan_group.add(batch)
        self.adding += perf_counter_ns() - started
        self.rows_in += batch.rows

    def finish(self) -> ScanOutput:
        """The deltas of all batches."""
        started = perf_counter_ns()
        found = self.scan_group.finish()
        self.finishing += perf_counter_ns() - started
        self.rows_out += sum(table.num_rows for tables in found.sections.values() for table in tables)
        return found

    def seen(self) -> WorkObservation:
        """What was measured."""
        return WorkObservation(self.rows_in, self.rows_out, self.adding + self.finishing)


def timed(
    operators: Iterable[Operator], relations: Mapping[str, pa.Table], row_layout_states: Collection[str] = ()
) -> list[Timed]:
    """Scanners for one task's operators; see `foldings`."""
    return [Timed(scan_group) for scan_group in scan_groups(operators, relations, row_layout_states)]


@dataclass(slots=True)
class Account:
    """What one state took so far."""

    nanoseconds: int = 0
    rows_in: int = 0
    rows_out: int = 0


class Ledger(dict[str, Account]):
    """Accounts by the name of the state, opened when they are first asked for."""

    def __missing__(self, name: str) -> Account:
        account = self[name] = Account()
        return account

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """What happens in the block is on that account."""
        started = perf_counter_ns()
        try:
            yield
        finally:
            self[name].nanoseconds += perf_counter_ns() - started

    def seen(self, kind: str, state_bytes: Mapping[str, int]) -> dict[str, WorkObservation]:
        """What was measured, by `kind` and name; with the bytes that each keeps.

        Nothing of those that had nothing, keep nothing and made nothing, as most of a thousand selections in an epoch.
        """
        found = {}
        for name, account in self.items():
            kept = state_bytes.get(name, 0)
            if account.rows_in or account.rows_out or kept:
                seen = WorkObservation(account.rows_in, account.rows_out, account.nanoseconds, kept)
                found[f"{kind} {name}"] = seen
        return found
