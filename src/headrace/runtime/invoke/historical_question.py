"""A question over the archive that states the error it accepts (`SELECT … WITHIN 2 PERCENT`): it reads the shortest prefixes of the
archive's runs from which the answer has that error, and shows the error and how much was read.

The prefixes grow until every value of the answer is accurate enough: what a prefix has is never read twice. The first one is
large enough for a variance to mean something; from its errors the next one is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Column, Expression, columns_of
from headrace.algebra.query import Ago, Bounds, Query, StreamScan
from headrace.algebra.windows.window import Unbounded
from headrace.archive import runs
from headrace.archive.estimates import Doubles, Estimates, Sums, averaged, counted, summed
from headrace.archive.prefixes import Prefixes
from headrace.catalog.definitions import StreamDefinition
from headrace.errors import UnsupportedQuery, UserError
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import Ints, as_int64, flat, group, ints
from headrace.operators.rows.row_pipeline import RowPipeline
from headrace.operators.scalar.evaluation.user_functions import registered
from headrace.planner.lowering.query_shape import Shape, shape_of
from headrace.planner.lowering.row_steps import Rename, row_steps
from headrace.runtime.backfill.archive_entries import ArchiveEntry
from headrace.runtime.backfill.vacuum import segments_of
from headrace.runtime.home.home import Home
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.plan.user_functions import callable_by_name
from headrace.schema import to_arrow
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, FOREVER, Instant

_FIRST_ROWS: Final = 4096
"""Rows of the first prefixes together, at least: from fewer a variance is a guess."""
_AT_ONCE: Final = 1 << 22
"""Rows that are in memory at a time, about."""
_AIMED: Final = 0.95
"""The share of the accepted error that the next prefix is computed for: its own estimate of the error varies."""
_prefixes: Final[Recent[tuple[str, str], Prefixes]] = Recent(4096)
_ESTIMATORS: Final[Mapping[str, Callable[[Sums], Estimates]]] = {
    "count": counted,
    "sum": summed,
    "avg": averaged,
}
_Key: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """The answer of a question: its rows, and how many rows of the archive were read of how many."""

    table: pa.Table
    read: int
    rows: int


def asked(home: Home, manifest: Manifest, query: Query, within: Fraction) -> Asked:
    """The answer of a question, each value within that fraction of itself at 95 %; 0 reads everything.

    Raises `UnsupportedQuery` where the error is not known from a part of the rows, and `UserError` where there is no archive to read.
    """
    shape = _admissible(query)
    stream = home.catalog.stream(shape.scan.name)
    assert stream is not None
    if stream.archive != "copy":
        raise UserError(
            f"the stream '{stream.name}' keeps no copy of its rows (archive '{stream.archive}')",
            remedy="WITHIN reads the archive: leave the option `archive` out.",
        )
    with registered(callable_by_name(home.catalog.functions)):
        reading = _Reading.of(home, manifest, stream, shape)
        share = reading.first_share()
        while True:
            reading.extend(share)
            answer = reading.answer()
            if reading.is_whole or (share := reading.next_share(answer, float(within))) <= reading.share:
                return Asked(reading.table(answer), reading.read, reading.rows)


def _admissible(query: Query) -> Shape:
    """The clauses of a question, all of which commute with reading a random part."""
    if query.revisions is not None or query.shedding or query.emission != "relation":
        raise _refused("with a window that slides, with WITH REVISIONS or WITH SHEDDING")
    shape = shape_of(query)
    scan = shape.scan
    if not isinstance(scan, StreamScan) or scan.channel != "rows":
        raise _refused(
            "over late or rejected rows, unions and other queries: they have no blocks of their own"
        )
    if not isinstance(shape.window, Unbounded):
        raise _refused("over a window of its own: BEGIN … END chooses the time")
    if shape.joins or shape.semijoin_columns:
        raise _refused("with a join: a part of the rows is not a part of the pairs")
    if shape.aggregate is None:
        raise _refused("without aggregates: rows that were not read have no estimate")
    if shape.distinct or shape.having or shape.top is not None:
        raise _refused(
            "with DISTINCT, HAVING, ORDER BY or LIMIT: which rows there are would depend on errors"
        )
    names = {key.name for key in shape.aggregate.keys} | {item.name for item in shape.aggregate.aggregates}
    for column in shape.project.columns:
        if not isinstance(column.expression, Column) or column.expression.name not in names:
            raise _refused(f"for '{column.name}': the error of an expression over estimates is not known")
    for item in shape.aggregate.aggregates:
        if item.call.function not in _ESTIMATORS or item.call.distinct or item.call.within is not None:
            raise _refused(
                f"for {item.call.function.upper()}{' DISTINCT' if item.call.distinct else ''}: it has no estimate from a part"
            )
    return shape


def _refused(reason: str) -> UnsupportedQuery:
    return UnsupportedQuery(
        f"WITHIN is not available {reason}",
        remedy="Available are COUNT, SUM and AVG over one stream, by groups or not, with WHERE and BEGIN … END.",
    )


@dataclass(slots=True)
class _Run:
    """One run: how much of it was read, and sums per group and aggregate of those rows."""

    name: str
    prefixes: Prefixes
    done: int = -1
    """The index of the prefix that was read."""
    sums: dict[int, Doubles] = field(default_factory=dict)
    """Group → (aggregates, 3): how many values, their sum, that of their squares."""

    @property
    def read(self) -> int:
        """Rows that were read."""
        return self.prefixes.rows[self.done] if self.done >= 0 else 0

    @property
    def rows(self) -> int:
        """All rows, also those that the archive has dropped."""
        return self.prefixes.population


@dataclass(slots=True)
class _Reading:
    """The runs that a question may read, and what it has read."""

    home: Home
    stream: StreamDefinition
    shape: Shape
    begin: Instant
    end: Instant
    runs: list[_Run]
    share: float = 0.0
    """Of each run at least this share was read."""
    groups: dict[_Key, int] = field(default_factory=dict)

    @staticmethod
    def of(home: Home, manifest: Manifest, stream: StreamDefinition, shape: Shape) -> _Reading:
        """The runs of a manifest that may have rows of the question."""
        begin, end = _between(shape.bounds, manifest.stream(stream.name).greatest)
        entries = map(ArchiveEntry.from_json, home.entries(manifest, f"archive:{stream.name}"))
        names = [
            segment.file
            for segment in segments_of(manifest, stream.name)
            if segment.high >= begin and segment.low <= end
        ]
        names += [
            name
            for entry in entries
            if entry.greatest >= begin and entry.before <= end
            for name in entry.files
        ]
        found = [_Run(name, _prefixes_of(home, name)) for name in names]
        return _Reading(home, stream, shape, begin, end, found)

    @property
    def rows(self) -> int:
        """Rows of all runs."""
        return sum(run.rows for run in self.runs)

    @property
    def read(self) -> int:
        """Rows that were read."""
        return sum(run.read for run in self.runs)

    @property
    def is_whole(self) -> bool:
        """Whether every row that is stored was read."""
        return all(run.done == len(run.prefixes.shares) - 1 for run in self.runs)

    def shares(self) -> list[float]:
        """The shares that some run has a prefix of, ascending."""
        return sorted({share for run in self.runs for share in run.prefixes.shares}) or [1.0]

    def rows_at(self, share: float) -> int:
        """Rows of the prefixes that hold a share."""
        return sum(run.prefixes.rows[run.prefixes.holding(share)] for run in self.runs)

    def first_share(self) -> float:
        """The least share with enough rows."""
        return next((share for share in self.shares() if self.rows_at(share) >= _FIRST_ROWS), 1.0)

    def next_share(self, answer: Sequence[Estimates], within: float) -> float:
        """The least share from which the answer should be accurate enough; the present one if it is."""
        needed = 1.0
        for estimates in answer:
            known = ~np.isnan(estimates.value)
            allowed = within * np.abs(estimates.value[known])
            error = estimates.error[known]
            if ((error > 0) & (allowed == 0)).any():
                return 1.0
            open_ = error > allowed
            if open_.any():
                needed = max(needed, float((error[open_] / (_AIMED * allowed[open_])).max()) ** 2)
        if needed == 1.0:
            return self.share
        # errors fall with the root of n / (1 - n / N)
        size, read = self.rows, self.read
        wanted = size / (1 + (size / read - 1) / needed)
        higher = [share for share in self.shares() if share > self.share]
        return next((share for share in higher if self.rows_at(share) >= wanted), 1.0)

    def extend(self, share: float) -> None:
        """Read on up to a share of each run."""
        waiting: list[tuple[int, pa.Table]] = []
        for number, table in self._further(share):
            waiting.append((number, table))
            if sum(table.num_rows for _, table in waiting) >= _AT_ONCE:
                self._fold(waiting)
                waiting = []
        if waiting:
            self._fold(waiting)
        self.share = share

    def _further(self, share: float) -> Iterator[tuple[int, pa.Table]]:
        columns = self._columns()
        for number, run in enumerate(self.runs):
            reach = run.prefixes.holding(share)
            if reach <= run.done:
                continue
            first = run.prefixes.groups[run.done] if run.done >= 0 else 0
            groups = range(first, run.prefixes.groups[reach])
            source = pa.BufferReader(self.home.store.map(run.name))
            file = pq.ParquetFile(source, metadata=run.prefixes.footer)
            yield number, file.read_row_groups(list(groups), columns, use_threads=False)
            run.done = reach

    def _columns(self) -> list[str]:
        """The stored columns that are read."""
        rename, aggregate = Rename(self.shape), self.shape.aggregate
        assert aggregate is not None
        expressions: list[Expression] = [*self.shape.before, *self.shape.where]
        expressions += [key.expression for key in aggregate.keys]
        for item in aggregate.aggregates:
            expressions += [part for part in (item.call.argument, item.call.condition) if part is not None]
        names = {name for expression in expressions for name in columns_of(rename(expression))}
        return sorted(names | {runs.FATE, self._time})

    @property
    def _time(self) -> str:
        time = self.stream.time
        return time if time is not None and runs.has_own_time(self.stream.schema.arrow(), time) else runs.AT

    def _fold(self, tables: Sequence[tuple[int, pa.Table]]) -> None:
        """Add rows of several runs to the sums."""
        table = pa.concat_tables([table for _, table in tables])
        of_run = np.repeat([number for number, _ in tables], [table.num_rows for _, table in tables])
        at = as_int64(flat(table.column(self._time)))
        batch = Batch({name: flat(table.column(name)) for name in table.column_names}, at, of_run)
        batch = batch.where((ints(table, runs.FATE) == runs.ACCEPTED) & (at >= self.begin) & (at <= self.end))
        aggregate, rename = self.shape.aggregate, Rename(self.shape)
        assert aggregate is not None
        pipeline = RowPipeline.of(row_steps(self.shape), {})
        batch = pipeline.apply(batch)
        items = [_over(item, rename) for item in aggregate.aggregates]
        expressions = [rename(key.expression) for key in aggregate.keys]
        for call in items:
            expressions += [part for part in (call.argument, call.condition) if part is not None]
        batch, values = pipeline.evaluate(batch, expressions)
        keys, values = values[: len(aggregate.keys)], values[len(aggregate.keys) :]
        grouped = group(keys, batch.rows)
        names = list(zip(*(column.to_pylist() for column in grouped.keys), strict=True)) if keys else [()]
        numbers = [self.groups.setdefault(name, len(self.groups)) for name in names[: grouped.count]]
        pairs, inverse = np.unique(
            batch.position * max(1, grouped.count) + grouped.codes, return_inverse=True
        )
        sums = np.stack(list(_sums(items, values, inverse, len(pairs))), axis=1)
        for pair, found in zip(pairs.tolist(), sums, strict=True):
            run, code = divmod(pair, max(1, grouped.count))
            mine = self.runs[run].sums
            number = numbers[code]
            mine[number] = mine[number] + found if number in mine else found

    def answer(self) -> list[Estimates]:
        """The estimates of each aggregate, by group."""
        assert self.shape.aggregate is not None
        aggregates = self.shape.aggregate.aggregates
        if not self.shape.aggregate.keys:
            self.groups.setdefault((), 0)
        shares = sorted({run.prefixes.shares[run.done] for run in self.runs})
        stratum = {share: number for number, share in enumerate(shares)}
        population, sample = np.zeros(len(shares)), np.zeros(len(shares))
        sums = np.zeros((len(shares), len(self.groups), len(aggregates), 3))
        for run in self.runs:
            number = stratum[run.prefixes.shares[run.done]]
            population[number] += run.rows
            sample[number] += run.read
            for of_group, found in run.sums.items():
                sums[number, of_group] += found
        return [
            _ESTIMATORS[item.call.function](
                Sums(population, sample, *(sums[:, :, index, part] for part in range(3)))
            )
            for index, item in enumerate(aggregates)
        ]

    def table(self, answer: Sequence[Estimates]) -> pa.Table:
        """The rows of the answer: as in a query WITH SHEDDING, each value followed by its error, and the share that was read."""
        aggregate = self.shape.aggregate
        assert aggregate is not None
        keys = {key.name: index for index, key in enumerate(aggregate.keys)}
        found = {item.name: estimates for item, estimates in zip(aggregate.aggregates, answer, strict=True)}
        columns: dict[str, pa.Array] = {}
        for column in self.shape.project.columns:
            assert isinstance(column.expression, Column)
            name = column.expression.name
            if name in keys:
                kind = to_arrow(column.expression.type)
                columns[column.name] = pa.array([key[keys[name]] for key in self.groups], kind)
            else:
                estimates = found[name]
                columns[column.name] = pa.array(estimates.value, from_pandas=True)
                columns[f"{column.name}_error"] = pa.array(estimates.error, from_pandas=True)
        kept = self.read / self.rows if self.rows else 1.0
        columns["kept"] = pa.array([kept] * len(self.groups), pa.float64())
        return pa.table(columns)


def _sums(
    calls: Sequence[AggregateCall], values: Sequence[pa.Array], codes: Ints, count: int
) -> Iterator[np.ndarray]:
    """Of each aggregate, by code: how many values, their sum, that of their squares; `values` are arguments and conditions."""
    left = iter(values)
    for call in calls:
        counts = np.ones(len(codes), np.bool_)
        numbers = np.ones(len(codes))
        if call.argument is not None:
            argument = next(left)
            counts = argument.is_valid().to_numpy(zero_copy_only=False)
            if call.function != "count":
                numbers = (
                    argument.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
                )
        if call.condition is not None:
            counts = counts & next(left).fill_null(False).to_numpy(zero_copy_only=False)
        if not counts.all():
            numbers = np.where(counts, numbers, 0.0)
        yield np.stack(
            [
                np.bincount(codes, counts, count),
                np.bincount(codes, numbers, count),
                np.bincount(codes, numbers * numbers, count),
            ],
            axis=1,
        )


def _over(item: NamedAggregate, rename: Rename) -> AggregateCall:
    return item.call.over(rename)


def _between(bounds: Bounds | None, now: Instant) -> tuple[Instant, Instant]:
    """The first and the last instant of the question."""
    if bounds is None:
        return BEGINNING, FOREVER
    begin, end = (
        now - bound.duration if isinstance(bound, Ago) else bound for bound in (bounds.begin, bounds.end)
    )
    return begin, end


def _prefixes_of(home: Home, name: str) -> Prefixes:
    """The prefixes of a run, from its footer or the cache."""
    key = str(home.store.root), name
    prefixes = _prefixes.get(key)
    if prefixes is None:
        prefixes = Prefixes.of(home.store.map(name))
        _prefixes.put(key, prefixes)
    return prefixes
