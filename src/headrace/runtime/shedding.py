"""What are queries WITH SHEDDING shown of a stream? Its kept rows, each with how many it stands for, filtered once for all.

It is decided after the rows are archived and judged: what is shed is in the archive, and late rows are late whatever is
kept. The decision is a function of the stream, a row's position and the share in force in the row's epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.algebra.shedding import MORE, SPREAD, WEIGHT
from headrace.archive.blocks import hashes_of, seed_of
from headrace.operators.batch import Batch
from headrace.overload.shedding import kept, weight_of
from headrace.runtime.measuring import Timed


@dataclass(slots=True)
class KeptRows:
    """The readers of a stream's kept rows in one task; `keep` is the share of rows that come now, `shed` counts the others."""

    readers: list[Timed]
    columns: frozenset[str]
    seed: int
    keep: float
    shed: int = 0

    @staticmethod
    def of(stream: str, keep: float, readers: list[Timed], columns: frozenset[str]) -> KeptRows:
        """Nothing shed yet."""
        return KeptRows(readers, columns, seed_of(stream), keep)

    def add(self, batch: Batch, then: float | None) -> None:
        """Show the readers what is kept of accepted rows; `then` is the share that was in force when they were first read."""
        if not self.readers or not batch.rows:
            return
        shown = shown_of(batch.only(self.columns), self.seed, self.keep if then is None else then)
        self.shed += batch.rows - shown.rows
        if shown.rows:
            for reader in self.readers:
                reader.add(shown)


def shown_of(batch: Batch, seed: int, keep: float) -> Batch:
    """The rows that are kept at a share, with their weights as columns."""
    if keep < 1:
        batch = batch.where(kept(hashes_of(batch.position, seed), keep))
    weight = weight_of(keep)
    weights = {WEIGHT: weight, MORE: weight - 1, SPREAD: weight * (weight - 1)}
    added = {name: pa.repeat(pa.scalar(each, pa.float64()), batch.rows) for name, each in weights.items()}
    return Batch({**batch.columns, **added}, batch.at, batch.position)
