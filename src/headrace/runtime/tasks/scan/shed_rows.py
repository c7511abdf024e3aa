"""What are queries WITH SHEDDING shown of a stream? Its kept rows, each with how many it stands for, filtered once for all.

It is decided after the rows are archived and judged: what is shed is in the archive, and late rows are late whatever is
kept. The decision is a function of the stream, a row's position and the share in force in the row's epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.shedding_estimates import MORE, SPREAD, WEIGHT
from headrace.archive.blocks import hashes_of, seed_of
from headrace.operators.base.batch import Batch
from headrace.overload.shedding import is_sampled, weight_of
from headrace.runtime.tasks.timing import Timed

_ENOUGH: Final = 1 << 17
"""Rows that are worth a reader's while: what is kept of a batch may be few."""


@dataclass(slots=True)
class SampledRows:
    """The readers of a stream's kept rows in one task; `keep` is the share of rows that come now, `shed` counts the others.

    Few rows wait for those of the next batches, until `flush`.
    """

    readers: list[Timed]
    columns: frozenset[str]
    seed: int
    sample_rate: float
    shed: int = 0
    _waiting: list[Batch] = field(default_factory=list)
    _rows: int = 0
    _share: float = 1.0
    """Of the rows that wait: rows that weigh alike are shown together."""

    @staticmethod
    def of(stream: str, sample_rate: float, readers: list[Timed], columns: frozenset[str]) -> SampledRows:
        """Nothing shed yet."""
        return SampledRows(readers, columns, seed_of(stream), sample_rate)

    def add(self, batch: Batch, then: float | None) -> None:
        """Show the readers what is kept of accepted rows; `then` is the share that was in force when they were first read."""
        if not self.readers or not batch.rows:
            return
        sample_rate = self.sample_rate if then is None else then
        shown = shown_of(batch.only(self.columns), self.seed, sample_rate)
        self.shed += batch.rows - shown.rows
        if not shown.rows:
            return
        if self._waiting and (self._share != sample_rate or _types(self._waiting[0]) != _types(shown)):
            self.flush()
        self._waiting.append(shown)
        self._share = sample_rate
        self._rows += shown.rows
        if self._rows >= _ENOUGH:
            self.flush()

    def flush(self) -> None:
        """Show the readers the rows that wait."""
        if self._waiting:
            shown, self._waiting, self._rows = joined(self._waiting), [], 0
            for reader in self.readers:
                reader.add(shown)


def shown_of(batch: Batch, seed: int, sample_rate: float) -> Batch:
    """The rows that are kept at a share, with their weights as columns."""
    if sample_rate < 1:
        batch = batch.where(is_sampled(hashes_of(batch.position, seed), sample_rate))
    weight = weight_of(sample_rate)
    weights = {WEIGHT: weight, MORE: weight - 1, SPREAD: weight * (weight - 1)}
    added = {name: pa.repeat(pa.scalar(each, pa.float64()), batch.rows) for name, each in weights.items()}
    return Batch({**batch.columns, **added}, batch.at, batch.position)


def joined(batches: Sequence[Batch]) -> Batch:
    """The rows of batches with the same columns, one after the other."""
    if len(batches) == 1:
        return batches[0]
    columns = {
        name: pa.concat_arrays([each.columns[name] for each in batches]) for name in batches[0].columns
    }
    at = np.concatenate([each.at for each in batches])
    return Batch(columns, at, np.concatenate([each.position for each in batches]))


def _types(batch: Batch) -> list[pa.DataType]:
    """How its columns lie, which may differ from file to file."""
    return [column.type for column in batch.columns.values()]
