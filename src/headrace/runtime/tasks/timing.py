"""How long does each piece of shared work take? The clock stands here, around the kernels; in them there is none.

A reading of it costs a tenth of a microsecond, once a batch for each fold and once an epoch for each state: nothing
beside the work itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Final

import pyarrow as pa

from headrace.observation import WorkObservation
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Operator
from headrace.operators.base.query_failures import QueryFailure, of_query
from headrace.operators.families.harvest import ScanOutput
from headrace.operators.sharing.scan_sharing import ScanGroup, SharingKind, groups, scan_group_of

_SMALL_BATCH: Final = 1 << 12
"""Rows at a time for an operator that has failed on more of them."""


@dataclass(slots=True)
class Timed:
    """A scan group, and what it took: `adding` rows, and `finishing`, in nanoseconds.

    What its operators raise is theirs: with a `failure` it takes no more rows, and the task goes on with the others.
    """

    queries: tuple[str, ...]
    scan_group: ScanGroup | None
    separate: bool = False
    failure: str | None = None
    adding: int = 0
    finishing: int = 0
    rows_in: int = 0
    rows_out: int = 0

    @staticmethod
    def of(
        how: SharingKind,
        operators: Sequence[Operator],
        relations: Mapping[str, pa.Table],
        row_layout_states: Collection[str],
        separate: Collection[str],
    ) -> Timed:
        """The scan group of operators that fold together, `how`."""
        queries = tuple(each.id for each in operators)
        alone = queries[0] in separate
        try:
            return Timed(queries, scan_group_of(how, operators, relations, row_layout_states), alone)
        except Exception as failure:  # noqa: BLE001 - of whatever kind it is, it is these operators'
            return Timed(queries, None, alone, of_query(failure))

    @property
    def representative(self) -> str:
        """The id of one of the operators: none of them folds anywhere else."""
        return self.queries[0] if self.scan_group is None else self.scan_group.representative

    def failures(self) -> dict[str, QueryFailure]:
        """Its operators where it has failed."""
        if self.failure is None:
            return {}
        return dict.fromkeys(self.queries, QueryFailure(self.failure, self.separate))

    def add(self, batch: Batch) -> None:
        """Take in a batch of accepted rows."""
        if self.failure is not None or self.scan_group is None:
            return
        started = perf_counter_ns()
        try:
            for part in batch.parts(_SMALL_BATCH) if self.separate else (batch,):
                self.scan_group.add(part)
        except Exception as failure:  # noqa: BLE001 - of whatever kind it is, it is these operators'
            self.failure = of_query(failure)
        self.adding += perf_counter_ns() - started
        self.rows_in += batch.rows

    def finish(self) -> ScanOutput:
        """The deltas of all batches."""
        if self.failure is not None or self.scan_group is None:
            return ScanOutput()
        started = perf_counter_ns()
        try:
            found = self.scan_group.finish()
        except Exception as failure:  # noqa: BLE001 - of whatever kind it is, it is these operators'
            self.failure, found = of_query(failure), ScanOutput()
        self.finishing += perf_counter_ns() - started
        self.rows_out += sum(table.num_rows for tables in found.sections.values() for table in tables)
        return found

    def seen(self) -> WorkObservation:
        """What was measured."""
        return WorkObservation(self.rows_in, self.rows_out, self.adding + self.finishing)


def timed(
    operators: Iterable[Operator],
    relations: Mapping[str, pa.Table],
    row_layout_states: Collection[str] = (),
    separate: Collection[str] = (),
) -> list[Timed]:
    """Scan groups of one task's operators; those `separate` are groups of their own."""
    wanted = list(operators)
    sets = [[each for each in wanted if each.id not in separate]] if separate else [wanted]
    sets += [[each] for each in wanted if each.id in separate]
    return [
        Timed.of(how, queries, relations, row_layout_states, separate)
        for some in sets
        for how, queries in groups(some)
    ]


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
