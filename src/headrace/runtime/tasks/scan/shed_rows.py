"""Load shedding: the sampled rows of a stream with their weights, computed once for all queries WITH SHEDDING.

Rows are shed after they are archived and found late or not: shed rows are in the archive, and late rows do not depend on
shedding. Whether a row is shed is a function of the stream, its position and the sample rate of its epoch.
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
"""Rows that are passed on together: a batch may have few sampled rows."""


@dataclass(slots=True)
class SampledRows:
    """The readers of a stream's sampled rows in one task; `sample_rate` is of rows that arrive now, `shed` counts the others.

    Few rows wait for those of the next batches, until `flush`.
    """

    readers: list[Timed]
    columns: frozenset[str]
    seed: int
    sample_rate: float
    shed: int = 0
    _waiting: list[Batch] = field(default_factory=list)
    _rows: int = 0
    _waiting_rate: float = 1.0
    """Sample rate of the rows that wait: rows of one weight are passed on together."""

    @staticmethod
    def of(stream: str, sample_rate: float, readers: list[Timed], columns: frozenset[str]) -> SampledRows:
        """Readers that have not shed any row yet."""
        return SampledRows(readers, columns, seed_of(stream), sample_rate)

    def add(self, batch: Batch, then: float | None) -> None:
        """Pass the sample of accepted rows to the readers; `then` is the sample rate of the epoch that first read them."""
        if not self.readers or not batch.rows:
            return
        sample_rate = self.sample_rate if then is None else then
        sample = shown_of(batch.only(self.columns), self.seed, sample_rate)
        self.shed += batch.rows - sample.rows
        if not sample.rows:
            return
        if self._waiting and (
            self._waiting_rate != sample_rate or _types(self._waiting[0]) != _types(sample)
        ):
            self.flush()
        self._waiting.append(sample)
        self._waiting_rate = sample_rate
        self._rows += sample.rows
        if self._rows >= _ENOUGH:
            self.flush()

    def flush(self) -> None:
        """Pass the waiting rows to the readers."""
        if self._waiting:
            sample, self._waiting, self._rows = joined(self._waiting), [], 0
            for reader in self.readers:
                reader.add(sample)


def shown_of(batch: Batch, seed: int, sample_rate: float) -> Batch:
    """The rows sampled at a rate, with their weights as columns."""
    if sample_rate < 1:
        batch = batch.where(is_sampled(hashes_of(batch.position, seed), sample_rate))
    weight = weight_of(sample_rate)
    weights = {WEIGHT: weight, MORE: weight - 1, SPREAD: weight * (weight - 1)}
    added = {name: pa.repeat(pa.scalar(value, pa.float64()), batch.rows) for name, value in weights.items()}
    return Batch({**batch.columns, **added}, batch.at, batch.position)


def joined(batches: Sequence[Batch]) -> Batch:
    """The rows of batches with the same columns, concatenated."""
    if len(batches) == 1:
        return batches[0]
    columns = {
        name: pa.concat_arrays([batch.columns[name] for batch in batches]) for name in batches[0].columns
    }
    at = np.concatenate([batch.at for batch in batches])
    return Batch(columns, at, np.concatenate([batch.position for batch in batches]))


def _types(batch: Batch) -> list[pa.DataType]:
    """The Arrow types of its columns, which may differ from file to file."""
    return [column.type for column in batch.columns.values()]
