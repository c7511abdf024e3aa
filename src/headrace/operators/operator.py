"""What the runtime asks of an operator.

An operator is an immutable value that lives in the epoch plan. Its work has two halves: a *scanner* turns a task's rows
into deltas, rows at rest that each belong to a slot; `advance` merges deltas with the operator's earlier runs, for the
slots of one task, when punctuation moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from headrace.operators.batch import Batch, Rejected
from headrace.time import Instant

SLOT: Final = "__slot"
WINDOW: Final = "__window"
AT: Final = "__at"

Sections: TypeAlias = Mapping[str, pa.Table]
"""State tables by section name; every row carries its slot in the column `__slot`."""


Windows: TypeAlias = tuple[range, ...]
"""Numbers of windows, as ranges that stand in order and apart."""


@dataclass(frozen=True, slots=True)
class Turn:
    """How far an operator is and how far it goes now.

    `closed`: the punctuation up to which answers were given. `now`: the new punctuation. `greatest`: the greatest event
    time seen. `final`: answer as if the stream ended here. `each`: where several streams are read as one, the punctuation
    of each, of which `now` is the least; empty where only that is known. `told`: where windows up to an instant past
    `closed` have been told although the state says nothing of it, since a provisional end is told in parts and written nowhere.
    """

    closed: Instant
    now: Instant
    greatest: Instant
    final: bool = False
    each: tuple[Instant, ...] = ()
    told: Instant | None = None

    @property
    def answered(self) -> Instant:
        """Up to where windows have been told."""
        return self.closed if self.told is None else self.told


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a scanner made of a task's rows."""

    deltas: Sections
    rejected: tuple[Rejected, ...] = ()
    rows_in: int = 0
    rows_kept: int = 0
    groups: int = 0
    few: int = 0
    """Of how many (pane, group) pairs the rows are, and how many of these have few: where that was counted."""


@dataclass(frozen=True, slots=True)
class Told:
    """Of how many (window, group) pairs an epoch answered, and how many rows these hold: where that was counted."""

    pairs: int = 0
    rows: int = 0

    def plus(self, pairs: int, rows: int) -> Told:
        """With some more."""
        return Told(self.pairs + pairs, self.rows + rows)


NOTHING_TOLD: Final = Told()


@dataclass(frozen=True, slots=True)
class Step:
    """What `advance` gives: sections to append to the state, results, and what was measured.

    `results` has the query's output columns plus `__at` (emission instant), `__window` (its window's number, or 0) and,
    for relations and for windows that are revised, `__change`.
    """

    state: Sections = field(default_factory=dict)
    results: pa.Table | None = None
    rejected: tuple[Rejected, ...] = ()
    open_windows: int = 0
    again: Windows = ()
    """Windows that were answered before and that `results` answers anew, because a late row is in them."""
    told: Told = NOTHING_TOLD


class Scanner(Protocol):
    """The scan half of an operator, for one task."""

    def add(self, batch: Batch) -> None:
        """Take in a batch of accepted rows."""
        ...

    def finish(self) -> Scanned:
        """The deltas of all batches."""
        ...


class Operator(Protocol):
    """One operator of the plan.

    Contract: `advance` is a pure function; its answer depends only on the union of all rows scanned, not on how they were
    cut into epochs, tasks or slots (asserted by the laws); `compact(name, tables)` may replace the tables at any time.
    """

    @property
    def id(self) -> str:
        """Stable name of its state."""
        ...

    @property
    def query(self) -> str:
        """The query whose results it makes."""
        ...

    @property
    def stream(self) -> str:
        """The stream it reads."""
        ...

    @property
    def columns(self) -> frozenset[str]:
        """The stream's columns it needs."""
        ...

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations its row steps look up."""
        ...

    def scanner(self, relations: Mapping[str, pa.Table]) -> Scanner:
        """A fresh scanner for one task."""
        ...

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], turn: Turn) -> Step:
        """Merge, close what punctuation allows, answer."""
        ...

    def compact(self, section: str, tables: Sequence[pa.Table], turn: Turn) -> pa.Table:
        """One table with the same meaning, without rows that no later answer needs."""
        ...
