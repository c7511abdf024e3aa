"""Measured time of shared work. The clock is read here, around the kernels, never in them.

A reading of the clock costs a tenth of a microsecond, once a batch for each scan group and once an epoch for each state.
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
    """A scan group, and the time of `adding` rows and of `finishing`, in nanoseconds."""

    scan_group: ScanGroup
    adding: int = 0
    finishing: int = 0
    rows_in: int = 0
    rows_out: int = 0

    def add(self, batch: Batch) -> None:
        """Add a batch of accepted rows."""
        started = perf_counter_ns()
        self.scan_group.add(batch)
        self.adding += perf_counter_ns() - started
        self.rows_in += batch.rows

    def finish(self) -> ScanOutput:
        """The deltas of all batches."""
        started = perf_counter_ns()
        output = self.scan_group.finish()
        self.finishing += perf_counter_ns() - started
        self.rows_out += sum(table.num_rows for tables in output.sections.values() for table in tables)
        return output

    def seen(self) -> WorkObservation:
        """The measurements."""
        return WorkObservation(self.rows_in, self.rows_out, self.adding + self.finishing)


def timed(
    operators: Iterable[Operator], relations: Mapping[str, pa.Table], row_layout_states: Collection[str] = ()
) -> list[Timed]:
    """Scanners for one task's operators; see `scan_groups`."""
    return [Timed(scan_group) for scan_group in scan_groups(operators, relations, row_layout_states)]


@dataclass(slots=True)
class Account:
    """The time and rows of one state so far."""

    nanoseconds: int = 0
    rows_in: int = 0
    rows_out: int = 0


class Ledger(dict[str, Account]):
    """Accounts by the name of the state, made on first use."""

    def __missing__(self, name: str) -> Account:
        account = self[name] = Account()
        return account

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of the block to the account."""
        started = perf_counter_ns()
        try:
            yield
        finally:
            self[name].nanoseconds += perf_counter_ns() - started

    def seen(self, kind: str, state_bytes: Mapping[str, int]) -> dict[str, WorkObservation]:
        """The measurements by `kind` and name, with the bytes of each state.

        States without rows and bytes are left out: most of a thousand selections in an epoch.
        """
        observations = {}
        for name, account in self.items():
            stored_bytes = state_bytes.get(name, 0)
            if account.rows_in or account.rows_out or stored_bytes:
                observation = WorkObservation(
                    account.rows_in, account.rows_out, account.nanoseconds, stored_bytes
                )
                observations[f"{kind} {name}"] = observation
        return observations
