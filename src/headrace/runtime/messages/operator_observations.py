"""What tasks have measured of thousands of operators, by column: most columns are one number, and the others are arrays.

A record for each would be made, pickled for each process on its way, and added to those of other tasks, once for each operator.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from functools import reduce
from itertools import repeat
from typing import Any, Final, TypeAlias

import numpy as np

from headrace.observation import OperatorObservation
from headrace.operators.base.operator import Step

MANY: Final = 256
"""From so many operators on columns cost less than records."""

Column: TypeAlias = Any
"""The number that all have, or an array of all."""


class OperatorObservations(Mapping[str, OperatorObservation]):
    """Measurements by operator: records of few, columns of many, of which records are made when one is asked for."""

    __slots__ = ("_columns", "_names", "_places", "_records")

    def __init__(
        self,
        names: tuple[str, ...],
        columns: Sequence[Column] | None,
        records: dict[str, OperatorObservation] | None = None,
    ) -> None:
        """The columns are those of `OperatorObservation`, in its order; or there are records."""
        self._names, self._records, self._places = names, records, dict[str, int]()
        self._columns = None if columns is None else tuple(map(_simplest, columns))

    @staticmethod
    def of(records: Mapping[str, OperatorObservation]) -> OperatorObservations:
        """The measurements in records."""
        if isinstance(records, OperatorObservations):
            return records
        if len(records) < MANY:
            return OperatorObservations(tuple(records), None, dict(records))
        return OperatorObservations(tuple(records), list(map(_array, zip(*records.values(), strict=True))))

    def having(self, measure: str) -> set[str]:
        """The operators of which a measure is not zero."""
        index = OperatorObservation._fields.index(measure)
        if self._columns is None:
            return {name for name, seen in self._by_name.items() if seen[index]}
        column = self._columns[index]
        if not isinstance(column, np.ndarray):
            return set(self._names) if column else set()
        return {self._names[place] for place in np.flatnonzero(column).tolist()}

    def some(self, names: Iterable[str]) -> OperatorObservations:
        """Those of these operators that are here; no record is made of columns."""
        if self._columns is None:
            records = self._by_name
            return OperatorObservations.of({name: records[name] for name in names if name in records})
        if not self._places:
            self._places = {name: place for place, name in enumerate(self._names)}
        here = tuple(name for name in names if name in self._places)
        at = np.array([self._places[name] for name in here], np.int64)
        columns = [column[at] if isinstance(column, np.ndarray) else column for column in self._columns]
        return OperatorObservations(here, columns)

    def plus(self, other: OperatorObservations) -> OperatorObservations:
        """The sums by operator."""
        if not self._names:
            return other
        if self._columns is None and other._columns is None:
            sums = dict(self._by_name)
            for name, seen in other._by_name.items():
                sums[name] = sums[name].plus(seen) if name in sums else seen
            return OperatorObservations(tuple(sums), None, sums)
        names = self._names
        if names != other._names:
            names = tuple(dict.fromkeys((*names, *other._names)))
        pairs = zip(self._of(names), other._of(names), strict=True)
        return OperatorObservations(names, [one + another for one, another in pairs])

    def _of(self, names: tuple[str, ...]) -> Sequence[Column]:
        """The columns of these operators, among which are all of its own; zeros for others."""
        columns = self._columns
        if columns is None:
            records = self._by_name.values()
            columns = tuple(map(_array, zip(*records, strict=True))) if records else OperatorObservation()
        if names == self._names:
            return columns
        places = {name: place for place, name in enumerate(names)}
        own = np.array([places[name] for name in self._names], np.int64)
        return [_spread(column, own, len(names)) for column in columns]

    def __getitem__(self, name: str) -> OperatorObservation:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def keys(self) -> KeysView[str]:
        """The names, from the same dictionary as `items`."""
        return self._by_name.keys()

    def items(self) -> ItemsView[str, OperatorObservation]:
        """The records by operator: of a dictionary, as a call for each would take as long as all else."""
        return self._by_name.items()

    def values(self) -> ValuesView[OperatorObservation]:
        """The records, from the same."""
        return self._by_name.values()

    @property
    def _by_name(self) -> dict[str, OperatorObservation]:
        if self._records is None:
            assert self._columns is not None
            records = map(OperatorObservation._make, zip(*map(_each, self._columns), strict=False))
            self._records = dict(zip(self._names, records, strict=False))
        return self._records

    def __reduce__(self) -> tuple[Any, ...]:
        """By column, also of few: records pickled one by one take three times as long."""
        if self._columns is not None:
            return OperatorObservations, (self._names, self._columns)
        return _with_records, (
            self._names,
            tuple(map(_of_records, zip(*self._by_name.values(), strict=True))),
        )


def added(parts: Iterable[Mapping[str, OperatorObservation]]) -> OperatorObservations:
    """The measurements of all tasks, or of several epochs, added by operator."""
    return reduce(OperatorObservations.plus, map(OperatorObservations.of, parts), OperatorObservations.of({}))


def of_step(step: Step, state_rows: int, taken: int) -> OperatorObservation:
    """What was measured of a step, of whose results so many were `taken` before; nothing was scanned here."""
    results = taken + (0 if step.results is None else step.results.num_rows)
    rejected = sum(rows.rows for rows in step.rejected) if step.rejected else 0
    counted = (state_rows, results, rejected, step.open_windows)
    emitted, probed = step.emitted_counts, step.probe_counts
    counts = (0, 0, emitted.pairs, emitted.rows, probed.probes, probed.candidates)
    return OperatorObservation(0, 0, 0, *counted, *counts, *(step.key_sample or ()))


def _spread(column: Column, places: np.ndarray, count: int) -> np.ndarray:
    whole = np.zeros(count, np.asarray(column).dtype)
    whole[places] = column
    return whole


def _with_records(names: tuple[str, ...], columns: Sequence[Column]) -> OperatorObservations:
    records = map(OperatorObservation._make, zip(*map(_each, columns), strict=False))
    return OperatorObservations(names, None, dict(zip(names, records, strict=False)))


def _of_records(column: tuple[Any, ...]) -> Column:
    return column[0] if column.count(column[0]) == len(column) else _array(column)


def _array(column: tuple[Any, ...]) -> np.ndarray:
    return np.array(column, np.float64 if float in set(map(type, column)) else np.int64)


def _simplest(column: Column) -> Column:
    """One number of an array of equal ones."""
    if not isinstance(column, np.ndarray) or (len(column) and (column != column[0]).any()):
        return column
    return column[0].item() if len(column) else 0


def _each(column: Column) -> Iterable[Any]:
    return column.tolist() if isinstance(column, np.ndarray) else repeat(column)
