"""Sample of keys with all of their rows, as a question has read it: rows of a stream whose blocks are drawn by key, of a SELECT per
key over it, or pairs of two such streams; and the estimates from the sums of each key.

A key is in the sample if its hash is below the share, whatever more of a run was read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression, conjunction
from headrace.archive.blocks import SEED_OF_KEYS, hashes_of
from headrace.archive.estimates import Doubles, Estimates, of_keys
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.operators.aggregates.cell_table import WindowCells, gather
from headrace.operators.aggregates.group_by import Grouped, columns_of_cells, fold
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import Ints, flat, group, hashes, picked
from headrace.operators.rows.row_pipeline import RowFilter, RowPipeline
from headrace.operators.scalar import Evaluation
from headrace.runtime.invoke.questions.archived_rows import ArchivedRows
from headrace.runtime.invoke.questions.clauses import PerKey, Question
from headrace.runtime.invoke.questions.run_sums import concatenated
from headrace.runtime.invoke.questions.sampled_rows import Groups
from headrace.runtime.invoke.questions.summaries import Summary
from headrace.runtime.invoke.questions.terms import Terms

_MOST_ROWS: Final = 1 << 26
"""Rows, or pairs of them, that are held in memory."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Sums of the terms of each key in each of its groups, and the number by which the key was drawn."""

    keys: tuple[pa.Array, ...]
    draw: Ints
    total: Doubles


@dataclass(slots=True)
class SampledKeys:
    """The keys of a question and their rows: sums where each row contributes by itself, else the rows."""

    question: Question
    sources: tuple[ArchivedRows, ...]
    terms: Terms
    own: list[RowPipeline]
    """The conditions of each stream."""
    over: RowPipeline
    """WHERE, on the rows that are aggregated."""
    target: float = 0.0
    parts: list[_Part] = field(default_factory=list)
    rows: list[list[Batch]] = field(default_factory=list)

    @staticmethod
    def of(question: Question, sources: Sequence[ArchivedRows]) -> SampledKeys:
        """Nothing read yet."""
        filters = [_filter(side.where) for side in question.sides]
        empty: list[list[Batch]] = [[] for _ in sources]
        over = _filter(question.where)
        return SampledKeys(question, tuple(sources), Terms.of(question.aggregates), filters, over, rows=empty)

    @property
    def summary(self) -> Summary | None:
        """None: windows have no keys with all of their rows."""
        return None

    @property
    def share(self) -> float:
        """The share of the keys that is in the sample: what was asked for, whatever more of a run its prefix has."""
        stored = min((source.least_stored for source in self.sources), default=1.0)
        return stored if all(source.is_whole for source in self.sources) else min(self.target, stored)

    @property
    def failed(self) -> int:
        """Rows left out, since an expression failed on them."""
        return sum(rejected.rows for pipeline in (*self.own, self.over) for rejected in pipeline.rejected)

    def extend(self, share: float, is_due: Callable[[], bool]) -> None:  # noqa: ARG002 - a sample of keys is of one share
        """Read on up to a share of each run: it has all rows of a key, or none."""
        self.target = share
        for number, source in enumerate(self.sources):
            for batch in source.further(share, lambda: False):
                passing = self.own[number].apply(batch)
                if self._sums_at_once:
                    self.parts.append(self._part(passing))
                else:
                    self._hold(number, passing)

    def finish(self) -> None:
        """Nothing is cached: the keys in the sample are others for each share."""

    @property
    def _sums_at_once(self) -> bool:
        return self.question.per_key is None and len(self.sources) == 1

    def _hold(self, number: int, batch: Batch) -> None:
        self.rows[number].append(batch)
        if sum(held.rows for side in self.rows for held in side) > _MOST_ROWS:
            raise _too_many("rows of the keys")

    def _part(self, batch: Batch) -> _Part:
        """The sums of rows that contribute by themselves, whatever their key is."""
        key = self.question.sides[0].key if self.question.per_key is None else self._name_of_key
        assert key is not None
        keys = [named.expression for named in self.question.keys]
        contributed = self.terms.contributions(self.over, self.over.apply(batch), keys)
        draw = hashes(flat(contributed.batch.columns[key]))
        grouped = group([*contributed.values, pa.array(draw)], contributed.batch.rows)
        sums = [np.bincount(grouped.codes, column, grouped.count) for column in contributed.terms]
        total: Doubles = np.stack(sums, axis=1).astype(np.float64, copy=False)
        return _Part(tuple(map(flat, grouped.keys[:-1])), grouped.keys[-1].to_numpy(), total)

    @property
    def _name_of_key(self) -> str:
        """The column with the key of a SELECT per key."""
        assert self.question.per_key is not None
        return f"{self.question.per_key.alias}.{_KEY}"

    def answer(self) -> tuple[Groups, dict[str, Estimates]]:
        """The groups, and the estimates of each column of the select list."""
        parts = self.parts
        if not self._sums_at_once:
            self.over = _filter(self.question.where)
            per_key = self.question.per_key
            rows = self._pairs() if per_key is None else _selected(per_key, self._held(0), self.over)
            parts = [self._part(rows)]
        keys = concatenated(self.question.keys, [part.keys for part in parts])
        draw = np.concatenate([part.draw for part in parts]) if parts else np.zeros(0, np.int64)
        size = len(self.terms.items)
        total = np.concatenate([part.total for part in parts]) if parts else np.zeros((0, size))
        is_drawn = self._drawn(draw)
        draw, total = draw[is_drawn], total[is_drawn]
        drawn = [key.filter(pa.array(is_drawn)) for key in keys]
        grouped = group(drawn, len(draw))
        count = grouped.count if keys else 1
        pairs = group([pa.array(grouped.codes), pa.array(draw)], len(draw))
        of_pair = np.zeros((pairs.count, size))
        np.add.at(of_pair, pairs.codes, total)
        for number, term in enumerate(self.terms.items):
            if term.once:
                of_pair[:, number] = of_pair[:, number] > 0
        totals = of_keys(self.share, pairs.keys[0].to_numpy().astype(np.int64), of_pair, count)
        return Groups(grouped.keys, count), self.terms.estimates(self.question, totals, self.share)

    def _drawn(self, draw: Ints) -> np.ndarray:
        """Which keys are in the sample."""
        high = hashes_of(draw, SEED_OF_KEYS) >> np.uint64(32)
        drawn: np.ndarray = high < self.share * 2**32
        return drawn

    def _held(self, number: int) -> Batch:
        """The rows of a stream whose keys are in the sample."""
        side = self.question.sides[number]
        key, held = side.key, [self._none(number), *self.rows[number]]
        assert key is not None
        columns = {
            name: pa.concat_arrays([batch.columns[name] for batch in held]) for name in held[0].columns
        }
        at = np.concatenate([batch.at for batch in held])
        position = np.concatenate([batch.position for batch in held])
        return Batch(columns, at, position).where(self._drawn(hashes(columns[key])))

    def _none(self, number: int) -> Batch:
        """No rows of a stream."""
        source, side = self.sources[number], self.question.sides[number]
        schema, nothing = side.stream.schema.arrow(), np.zeros(0, np.int64)
        columns = {
            f"{side.scan.alias}.{name}": pa.nulls(0, schema.field(name).type) for name in source.columns
        }
        return Batch(columns, nothing, nothing)

    def _pairs(self) -> Batch:
        """All pairs of rows with equal keys, for WHERE to choose from."""
        left, right = self._held(0), self._held(1)
        names = [side.key for side in self.question.sides]
        drawn = [hashes(batch.columns[name or ""]) for batch, name in zip((left, right), names, strict=True)]
        grouped = group([pa.array(np.concatenate(drawn))], left.rows + right.rows)
        of_left, of_right = grouped.codes[: left.rows], grouped.codes[left.rows :]
        counts = np.bincount(of_right, minlength=grouped.count)
        matches = counts[of_left]
        if matches.sum() > _MOST_ROWS:
            raise _too_many("pairs of rows with equal keys")
        order = np.argsort(of_right, kind="stable")
        start = np.cumsum(counts) - counts
        first = np.repeat(np.arange(left.rows), matches)
        offset = np.arange(len(first)) - np.repeat(np.cumsum(matches) - matches, matches)
        second = order[np.repeat(start[of_left], matches) + offset]
        one, other = left.take(first), right.take(second)
        return one.with_columns(other.columns)


_KEY: Final = "@key"
"""The column of the key, next to those of a SELECT per key."""


def _filter(factors: Sequence[Expression]) -> RowPipeline:
    return RowPipeline.of((RowFilter(conjunction(list(factors))),) if factors else (), {})


def _selected(per_key: PerKey, batch: Batch, over: RowPipeline) -> Batch:
    """The rows of a SELECT per key, and the key of each."""
    grouped = per_key.grouped
    batch, values = over.evaluate(batch, grouped.inputs())
    columns, failed = _aggregated(grouped, values, batch.rows)
    rows = len(columns[per_key.key])
    passing = np.ones(rows, np.bool_) if failed is None else ~failed
    evaluation = Evaluation(columns, rows)
    for factor in per_key.having:
        passing &= evaluation.mask(factor)
    shown = {
        f"{per_key.alias}.{name}": evaluation.values(named.expression)
        for name, named in zip(per_key.names, per_key.project.columns, strict=True)
    }
    if evaluation.errors is not None:
        passing &= ~evaluation.errors.mask
    shown[f"{per_key.alias}.{_KEY}"] = flat(columns[per_key.key])
    return Batch(shown, np.zeros(rows, np.int64), np.arange(rows)).where(passing)


def _aggregated(
    grouped: Grouped, values: Sequence[pa.Array], rows: int
) -> tuple[dict[str, pa.Array], np.ndarray | None]:
    """The groups of rows with their aggregates, and where one of these overflowed."""
    chunks = []
    for layout, table in zip(
        grouped.layouts, fold(grouped, np.zeros(rows, np.int64), values, 0), strict=True
    ):
        cells = gather(layout, [table])
        keys = tuple(picked(key, cells.groups.codes) for key in cells.groups.keys)
        chunks.append(WindowCells(cells.blocks, keys, cells.answer))
    return columns_of_cells(grouped, chunks[0], [[chunk] for chunk in chunks[1:]])


def _too_many(what: str) -> UserError:
    return UserError(
        f"more than {_MOST_ROWS:,} {what} do not fit in memory",
        remedy="Accept a larger error, or choose fewer rows with WHERE or BEGIN … END.",
    )
