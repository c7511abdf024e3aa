"""Measurement of shared work in tasks: time and rows of each scan group, with the failures of its operators, and of each
state. The clock is read here, around the kernels, never in them.

A reading of the clock costs a tenth of a microsecond, once a batch for each scan group and once an epoch for each state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Final, TypeAlias

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.observation import WorkObservation
from headrace.operators.base.batch import Batch
from headrace.operators.base.made_once import MadeOnce
from headrace.operators.base.operator import Operator
from headrace.operators.base.query_failures import QueryFailure, of_query
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.sharing.scan_sharing import ScanGroup, SharingKind, groups, scan_group_of

_SMALL_BATCH: Final = 1 << 12
"""Rows of a batch for isolated operators."""
Shares: TypeAlias = Sequence[tuple[SharingKind, Sequence[Operator]]]
_groups: Final[MadeOnce[dict[frozenset[str], Shares]]] = MadeOnce(16)
"""How operators share, by their identity and the states in row layout: it is found by comparing conditions and keys, and is the
same in each epoch of a plan until these change.
"""


@dataclass(slots=True)
class Timed:
    """A scan group, and the time of `adding` rows and of `finishing`, in nanoseconds.

    Errors of its operators are theirs: with a `failure` it takes no more rows, and the task continues with the others.
    """

    queries: tuple[str, ...]
    scan_group: ScanGroup | None
    isolated: bool = False
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
        isolated: Collection[str],
    ) -> Timed:
        """The scan group of operators with this kind of sharing."""
        queries = tuple([operator.id for operator in operators])
        by_itself = queries[0] in isolated
        try:
            return Timed(queries, scan_group_of(how, operators, relations, row_layout_states), by_itself)
        except Exception as failure:  # noqa: BLE001 - of any kind: it is these operators'
            return Timed(queries, None, by_itself, of_query(failure))

    @property
    def representative(self) -> str:
        """The id of one of the operators; each is in one scan group only."""
        return self.queries[0] if self.scan_group is None else self.scan_group.representative

    def failures(self) -> dict[str, QueryFailure]:
        """Its operators, if it failed."""
        if self.failure is None:
            return {}
        return dict.fromkeys(self.queries, QueryFailure(self.failure, self.isolated))

    def add(self, batch: Batch) -> None:
        """Add a batch of accepted rows."""
        if self.failure is not None or self.scan_group is None:
            return
        started = perf_counter_ns()
        try:
            for part in batch.parts(_SMALL_BATCH) if self.isolated else (batch,):
                self.scan_group.add(part)
        except Exception as failure:  # noqa: BLE001 - of any kind: it is these operators'
            self.failure = of_query(failure)
        self.adding += perf_counter_ns() - started
        self.rows_in += batch.rows

    def finish(self) -> ScanOutput:
        """The deltas of all batches."""
        if self.failure is not None or self.scan_group is None:
            return ScanOutput()
        started = perf_counter_ns()
        try:
            output = self.scan_group.finish()
        except Exception as failure:  # noqa: BLE001 - of any kind: it is these operators'
            self.failure, output = of_query(failure), ScanOutput()
        self.finishing += perf_counter_ns() - started
        self.rows_out += sum(table.num_rows for tables in output.sections.values() for table in tables)
        return output

    def seen(self) -> WorkObservation:
        """The measurements."""
        return WorkObservation(self.rows_in, self.rows_out, self.adding + self.finishing)


def timed(
    operators: Iterable[Operator],
    relations: Mapping[str, pa.Table],
    row_layout_states: Collection[str] = (),
    isolated: Collection[str] = (),
) -> list[Timed]:
    """Scan groups of one task's operators, see `scan_groups`; each of those `isolated` has its own."""
    taking_part = list(operators)
    if not taking_part:
        return []
    together = [operator for operator in taking_part if operator.id not in isolated]
    sets = [together, *([operator] for operator in taking_part if operator.id in isolated)]
    return [
        Timed.of(how, queries, relations, row_layout_states, isolated)
        for sharing in sets
        for how, queries in _shared(sharing, row_layout_states)
    ]


def _shared(operators: Sequence[Operator], row_layout_states: Collection[str]) -> Shares:
    """`groups`, found once for the same operators and states in row layout; what was found for other states is dropped."""
    known, layouts = _groups.of(tuple(operators), dict), frozenset(row_layout_states)
    shares = known.get(layouts)
    if shares is None:
        shares = tuple(groups(operators, layouts))
        known.clear()
        known[layouts] = shares
    return shares


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
