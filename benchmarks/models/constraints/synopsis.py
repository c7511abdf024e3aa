"""The rows of one stream that a constrained join holds: keys, status (Yes, No or Unknown), arrival numbers and what each row
waits for, as columns; and look-ups by key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
UNKNOWN: Final = 0
YES: Final = 1
NO: Final = 2
SHADOW: Final = 3
"""Discarded, and watched only for its distances."""
NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A batch of rows of one stream. `place`: their places in the order of all streams, ascending. `passes`: the filter holds."""

    stream: str
    place: Ints
    columns: Mapping[str, Ints]
    passes: Bools

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.place)


@dataclass(slots=True)
class Synopsis:
    """The rows held of one stream. `arrived` counts all that ever came, `number` is a row's own count, from 1.

    `since[c]`: how many rows of child stream c had come when a row came. `window`: a row expires with the window-th row after it.
    """

    names: Sequence[str]
    children: Sequence[str]
    window: int | None = None
    arrived: int = 0
    place: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    number: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    status: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    dies: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """The place at which a row expires, the end of time while that is not known."""
    given_up: Bools = field(default_factory=lambda: np.empty(0, bool))
    """Rows that are No because by a constraint a row below will not come."""
    columns: dict[str, Ints] = field(default_factory=dict)
    since: dict[str, Ints] = field(default_factory=dict)
    _orders: dict[str, Ints] = field(default_factory=dict)
    """By column that was searched: all rows in the order of its values, equal ones in that of arrival."""

    def __post_init__(self) -> None:
        self.columns = {name: np.empty(0, np.int64) for name in self.names}
        self.since = {child: np.empty(0, np.int64) for child in self.children}

    def __len__(self) -> int:
        """The number of rows, shadows too."""
        return len(self.place)

    def add(self, batch: Arrivals, since: Mapping[str, Ints]) -> None:
        """Add new rows: those that fail the filter are No, the others Unknown."""
        self.place = np.concatenate([self.place, batch.place])
        number = self.arrived + 1 + np.arange(batch.rows)
        self.number = np.concatenate([self.number, number])
        self.status = np.concatenate([self.status, np.where(batch.passes, UNKNOWN, NO)])
        self.dies = np.concatenate([self.dies, np.full(batch.rows, NEVER)])
        self.given_up = np.concatenate([self.given_up, np.zeros(batch.rows, bool)])
        self.arrived += batch.rows
        if self.window is not None:
            index = self.number + self.window - (self.arrived - batch.rows) - 1
            ends = (index >= 0) & (index < batch.rows)
            self.dies[ends] = batch.place[index[ends]]
        for name, order in self._orders.items():
            self._orders[name] = _merged(order, self.columns[name], batch.columns[name])
        for name, values in self.columns.items():
            self.columns[name] = np.concatenate([values, batch.columns[name]])
        for child, values in self.since.items():
            self.since[child] = np.concatenate([values, since[child]])

    def keep(self, rows: Bools) -> None:
        """Drop all other rows."""
        if rows.all():
            return
        self.place, self.number, self.status = self.place[rows], self.number[rows], self.status[rows]
        self.dies, self.given_up = self.dies[rows], self.given_up[rows]
        self.columns = {name: values[rows] for name, values in self.columns.items()}
        self.since = {child: values[rows] for child, values in self.since.items()}
        places = np.cumsum(rows) - 1
        self._orders = {name: places[order[rows[order]]] for name, order in self._orders.items()}

    def counts(self) -> dict[int, int]:
        """The number of rows by status."""
        return {status: int(np.count_nonzero(self.status == status)) for status in (UNKNOWN, YES, NO, SHADOW)}

    def row_of(self, name: str, values: Ints, among: Bools) -> Ints:
        """For each value the newest of some rows that has it in a column; -1 without one."""
        order = self.in_order(name, among)
        if not len(order):
            return np.full(len(values), -1)
        held = self.columns[name][order]
        index = np.searchsorted(held, values, side="right") - 1
        newest = order[np.maximum(index, 0)]
        return np.where((index >= 0) & (self.columns[name][newest] == values), newest, -1)

    def pairs_of(self, name: str, values: Ints, among: Bools) -> tuple[Ints, Ints]:
        """(index into values, row) of all of some rows that have a value in a column."""
        order = self.in_order(name, among)
        held = self.columns[name][order]
        low, high = (np.searchsorted(held, values, side) for side in ("left", "right"))
        counts = high - low
        index = np.repeat(np.arange(len(values)), counts)
        offset = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
        return index, order[low[index] + offset]

    def in_order(self, name: str, among: Bools) -> Ints:
        """Some rows in the order of a column, which is sorted once; later rows are merged into it."""
        if name not in self._orders:
            self._orders[name] = np.argsort(self.columns[name], kind="stable")
        order = self._orders[name]
        return order[among[order]]


def _merged(order: Ints, values: Ints, new: Ints) -> Ints:
    """The order of values with new ones behind them."""
    added = np.argsort(new, kind="stable")
    return np.insert(order, np.searchsorted(values[order], new[added], side="right"), len(values) + added)
