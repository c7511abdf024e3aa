"""Load shedding: the sampled rows of a stream with their weights, computed once for all queries WITH SHEDDING that see the
same share, and for each that states its quality of service by the share that was chosen for it.

Rows are shed after they are archived and found late or not: shed rows are in the archive, and late rows do not depend on
shedding. Whether a row is shed is a function of the stream, its position and the shares of its epoch; with importance by
value also of the interval that its value is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import chain
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.algebra.expressions.shedding_estimates import MORE, SPREAD, WEIGHT
from headrace.algebra.quality_of_service import Importance
from headrace.archive.blocks import hashes_of, seed_of
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch
from headrace.overload.nested_samples import NestedSamples
from headrace.overload.shedding import intervals_of, is_sampled_by, weight_of
from headrace.runtime.messages.task_messages import Split
from headrace.runtime.tasks.timing import Timed

_ENOUGH: Final = 1 << 17
"""Rows that are passed on together: a batch may have few sampled rows."""
_ALL: Final = (1.0,)
_whole: Final = {value: pa.array([], pa.float64()) for value in (0.0, 1.0)}
"""Columns of one value, as long as the longest batch up to now."""


@dataclass(slots=True)
class BatchSamples:
    """What the samples of one batch have in common: the samples themselves, which are nested, and the intervals of its values."""

    batch: Batch
    nested: NestedSamples
    _intervals: dict[Importance, npt.NDArray[np.int64]] = field(default_factory=dict)

    @staticmethod
    def of(batch: Batch, seed: int) -> BatchSamples:
        """Those of a batch of a stream; rows are sampled by hashes of their positions."""
        return BatchSamples(batch, NestedSamples(lambda: hashes_of(batch.position, seed)))

    def intervals(self, importance: Importance) -> npt.NDArray[np.int64]:
        """The interval of importance of each row."""
        if importance not in self._intervals:
            self._intervals[importance] = intervals_of(self.batch.columns[importance.column], importance)
        return self._intervals[importance]


@dataclass(slots=True)
class SampledRows:
    """The readers of one sample of a stream in one task; `sample_rate` is of rows that arrive now, `shed` counts the others.

    `operator` is the one reader whose shares are chosen for it, "" for all others; `shares` are those of rows that arrive now,
    one for all rows or one for each interval of `importance`, at most the sample rate. `arrived` counts the rows by interval.
    Readers that repair see all rows of the archive, or of a split that `repairs` those of the intervals of which some were shed.
    Few rows wait for those of the next batches, until `flush`.
    """

    readers: list[Timed]
    columns: frozenset[str]
    seed: int
    sample_rate: float
    operator: str = ""
    importance: Importance | None = None
    shares: tuple[float, ...] = _ALL
    repairs: bool = False
    shed: int = 0
    arrived: npt.NDArray[np.int64] = field(init=False)
    _waiting: list[Batch] = field(default_factory=list)
    _rows: int = 0
    _waiting_rates: tuple[float, ...] = _ALL
    """Sample rates of the rows that wait: rows of one weight are passed on together."""

    def __post_init__(self) -> None:
        self.arrived = np.zeros(1 if self.importance is None else len(self.importance.levels), np.int64)

    @staticmethod
    def of(
        stream: str,
        sample_rate: float,
        readers: list[Timed],
        columns: frozenset[str],
        *,
        repairs: bool = False,
    ) -> SampledRows:
        """Readers that have not shed any row yet."""
        return SampledRows(readers, columns, seed_of(stream), sample_rate, repairs=repairs)

    def add(self, batch: Batch, split: Split, samples: BatchSamples) -> None:
        """Pass the sample of accepted rows to the readers; a split of the archive has the shares of the epoch that first read it."""
        if not self.readers or not batch.rows:
            return
        rates = self._rates(split)
        if split.repairs:
            batch, rates = self._unsampled(samples, rates), _ALL
            samples = BatchSamples.of(batch, self.seed)
            if not batch.rows:
                return
        elif self.repairs and split.sample_rate is not None:
            rates = _ALL
        sample = self._sample(samples, rates)
        self.shed += batch.rows - sample.rows
        if not sample.rows:
            return
        if self._waiting and (self._waiting_rates != rates or _types(self._waiting[0]) != _types(sample)):
            self.flush()
        self._waiting.append(sample)
        self._waiting_rates = rates
        self._rows += sample.rows
        if self._rows >= _ENOUGH:
            self.flush()

    def _rates(self, split: Split) -> tuple[float, ...]:
        """The sample rates of a split's rows, one or one for each interval."""
        if split.sample_rate is None:
            return tuple(min(self.sample_rate, share) for share in self.shares)
        return tuple(min(split.sample_rate, share) for share in split.shares.get(self.operator, _ALL))

    def _unsampled(self, samples: BatchSamples, rates: tuple[float, ...]) -> Batch:
        """The rows of the intervals of which a sample was seen."""
        batch = samples.batch
        if self.importance is None or max(rates) < 1:
            return batch
        is_whole = np.array(rates) >= 1
        if len(rates) == 1:
            return batch.where(np.full(batch.rows, not is_whole[0]))
        return batch.where(~is_whole[samples.intervals(self.importance)])

    def _sample(self, samples: BatchSamples, rates: tuple[float, ...]) -> Batch:
        needed = samples.batch.only(self.columns)
        if self.importance is None:
            self.arrived[0] += needed.rows
            return sampled_at(needed, samples.nested, rates[0])
        intervals = samples.intervals(self.importance)
        self.arrived += np.bincount(intervals, minlength=len(self.arrived))
        if len(set(rates)) == 1:
            return sampled_at(needed, samples.nested, rates[0])
        return sampled_by_interval(needed, samples.nested, intervals, rates)

    def flush(self) -> None:
        """Pass the waiting rows to the readers."""
        if self._waiting:
            sample, self._waiting, self._rows = joined(self._waiting), [], 0
            for reader in self.readers:
                reader.add(sample)


class Part(Protocol):
    """Readers of the same rows of a stream."""

    readers: list[Timed]
    seed: int
    operator: str
    shed: int
    arrived: npt.NDArray[np.int64]

    def add(self, batch: Batch, split: Split, samples: BatchSamples) -> None:
        """Pass accepted rows on, or their sample."""
        ...

    def flush(self) -> None:
        """Pass the waiting rows to the readers."""
        ...


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples of a stream in one task, and the rows that are counted exactly or sketched."""

    parts: Sequence[Part]

    @property
    def readers(self) -> list[Timed]:
        """Those of all samples."""
        return list(chain.from_iterable(part.readers for part in self.parts))

    @property
    def shed(self) -> int:
        """How many rows the query that got the fewest did not get."""
        return max((part.shed for part in self.parts), default=0)

    @property
    def arrived(self) -> dict[str, tuple[int, ...]]:
        """By operator whose shares are chosen for it: how many rows arrived for it, by interval of importance."""
        return {part.operator: tuple(part.arrived.tolist()) for part in self.parts if part.operator}

    def add(self, batch: Batch, split: Split) -> None:
        """Pass accepted rows on."""
        if self.parts:
            samples = BatchSamples.of(batch, self.parts[0].seed)
            for part in self.parts:
                part.add(batch, split, samples)

    def flush(self) -> None:
        """Pass the waiting rows to the readers."""
        for part in self.parts:
            part.flush()


def shown_of(batch: Batch, seed: int, sample_rate: float) -> Batch:
    """The rows sampled at a rate, with their weights as columns."""
    return sampled_at(batch, BatchSamples.of(batch, seed).nested, sample_rate)


def sampled_at(batch: Batch, samples: NestedSamples, sample_rate: float) -> Batch:
    """As `shown_of`, by the samples of the rows."""
    if sample_rate < 1:
        batch = batch.take(samples.rows(sample_rate))
    weight = weight_of(sample_rate)
    weights = {WEIGHT: weight, MORE: weight - 1, SPREAD: weight * (weight - 1)}
    added = {name: _repeated(value, batch.rows) for name, value in weights.items()}
    return batch.with_columns(added)


def _repeated(value: float, rows: int) -> pa.Array:
    """A column of one value. Without shedding all weights are 1, and what they lack is 0: these are made once, not for every batch and query."""
    if value not in _whole:
        return pa.repeat(pa.scalar(value, pa.float64()), rows)
    if len(_whole[value]) < rows:
        _whole[value] = pa.repeat(pa.scalar(value, pa.float64()), 1 << rows.bit_length())
    return _whole[value][:rows]


def sampled_by_interval(
    batch: Batch, samples: NestedSamples, intervals: npt.NDArray[np.int64], rates: Sequence[float]
) -> Batch:
    """The rows sampled at the rate of the interval that each is in, with their weights as columns."""
    rows, hashes = samples.around(max(rates))
    is_shown = is_sampled_by(hashes, intervals[rows], rates)
    shown = rows[is_shown]
    weight = np.array([weight_of(rate) for rate in rates])[intervals[shown]]
    weights = {WEIGHT: weight, MORE: weight - 1, SPREAD: weight * (weight - 1)}
    sample = batch.take(shown)
    added = {name: pa.array(values) for name, values in weights.items()}
    return sample.with_columns(added)


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
