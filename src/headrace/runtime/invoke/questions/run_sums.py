"""Sums of archive runs that a question has read whole, cached in the process: a later question with the same groups, conditions and
terms reads only the runs that are new, or that its time cuts (OSCAR's lazy copies of aggregates, by run instead of by hour). They count to the memory budget of the hub.

A run is never rewritten, so its sums do not change. Where rows failed, or values of percentiles are needed, nothing is cached.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.algebra.expressions.expression import Column, Expression, Named, transform
from headrace.archive.estimates import Doubles
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints, group
from headrace.overload.priority_pool import PriorityPool
from headrace.runtime.invoke.questions.archived_rows import ArchivedRows, ArchivedRun
from headrace.runtime.invoke.questions.clauses import Question
from headrace.runtime.plan.adaptive.memory_budget import SUMS, bytes_for_sums
from headrace.schema import to_arrow

_MOST_GROUPS: Final = 4096
"""Groups of a run up to which its sums are cached."""
Signature: TypeAlias = tuple[frozenset[Expression], tuple[Expression, ...], tuple[AggregateCall, ...]]
"""The conditions, the groups and the aggregates of a question, over the columns of its stream."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that were read together, by run and group: keys and run of each pair, sums and sums of products of the terms."""

    keys: tuple[pa.Array, ...]
    run: Ints
    total: Doubles
    products: Doubles
    values: list[tuple[Ints, Doubles]]
    """Of each percentile: the values, and the pair of each."""

    @property
    def nbytes(self) -> int:
        """Of keys, sums and products."""
        arrays = (self.run, self.total, self.products, *(part for pair in self.values for part in pair))
        return sum(key.nbytes for key in self.keys) + sum(array.nbytes for array in arrays)

    def without(self, replaced: Collection[int]) -> Part:
        """Those of other runs."""
        kept = ~np.isin(self.run, list(replaced))
        if kept.all():
            return self
        pairs, mask = np.cumsum(kept) - 1, pa.array(kept)
        return Part(
            tuple(key.filter(mask) for key in self.keys),
            self.run[kept],
            self.total[kept],
            self.products[kept],
            [(pairs[of][kept[of]], value[kept[of]]) for of, value in self.values],
        )


cached: Final[PriorityPool[Signature, str, Part]] = SUMS
"""By home, signature and run. What saves most rows for its bytes stays, and what is asked for often: a question that is asked once
does not evict the sums of one that a dashboard repeats.
"""


def signature_of(question: Question, source: ArchivedRows) -> Signature | None:
    """What determines the sums of a run; None where they are not cached."""
    calls = [item.call for item in question.aggregates]
    if any(call.function == "percentile" for call in calls) or source.home.catalog.functions:
        return None
    prefix = f"{question.sides[0].scan.alias}."

    def own(node: Expression) -> Expression | None:
        is_own = isinstance(node, Column) and node.name.startswith(prefix)
        return (
            Column(node.name.removeprefix(prefix), node.type) if is_own and isinstance(node, Column) else None
        )

    factors = (*question.sides[0].where, *question.where)
    return (
        frozenset(transform(factor, own) for factor in factors),
        tuple(transform(key.expression, own) for key in question.keys),
        tuple(call.over(lambda part: transform(part, own)) for call in calls),
    )


@dataclass(frozen=True, slots=True)
class RunSums:
    """The cache as a question sees it: the sums of its signature, in its home; `kind` is the number of the signature in the pool."""

    source: ArchivedRows
    signature: Signature
    kind: int

    @staticmethod
    def of(question: Question, source: ArchivedRows) -> RunSums | None:
        """Of a question that is asked now; None where nothing is cached."""
        signature = signature_of(question, source)
        if signature is None:
            return None
        return RunSums(source, signature, cached.ask(str(source.home.store.root), signature))

    def known(self, opened: Sequence[ArchivedRun]) -> list[Part]:
        """The cached sums of those runs that the question has all rows of; these runs count as read."""
        parts = []
        for run in opened:
            part = self._get(run)
            if part is not None and self.source.has_all_of(run):
                run.recall()
                parts.append(replace(part, run=np.full(len(part.run), run.number, np.int64)))
        return parts

    def remember(self, parts: Sequence[Part]) -> None:
        """Cache the sums of the runs that were read whole."""
        most = bytes_for_sums(self.source.manifest)
        pairs = np.concatenate([np.zeros(0, np.int64), *(part.run for part in parts)])
        for run in self.source.runs:
            is_new = run.is_whole and not run.is_cached
            if is_new and (pairs == run.number).sum() <= _MOST_GROUPS and self.source.has_all_of(run):
                part, rows = _of_run(parts, run.number), run.prefixes.rows[-1]
                cached.put(self._home, self.kind, run.identity, part, rows, most)

    def remembered(self, of: Sequence[ArchivedRun]) -> dict[str, Part]:
        """The cached sums of some runs, by the identity of these."""
        found = {run.identity: self._get(run) for run in of}
        return {identity: part for identity, part in found.items() if part is not None}

    @property
    def _home(self) -> str:
        return str(self.source.home.store.root)

    def _get(self, run: ArchivedRun) -> Part | None:
        return cached.get(self._home, self.kind, run.identity)


def concatenated(keys: Sequence[Named], parts: Sequence[Sequence[pa.Array]]) -> tuple[pa.Array, ...]:
    """The columns of keys, of which each part has some rows."""
    return tuple(
        pa.concat_arrays([pa.nulls(0, to_arrow(key.expression.type)), *(part[number] for part in parts)])
        for number, key in enumerate(keys)
    )


def _of_run(parts: Sequence[Part], number: int) -> Part:
    """The sums of one run by group."""
    places = [np.flatnonzero(part.run == number) for part in parts]
    keys = tuple(
        pa.concat_arrays(
            [part.keys[key].take(pa.array(rows)) for part, rows in zip(parts, places, strict=True)]
        )
        for key in range(len(parts[0].keys) if parts else 0)
    )
    grouped = group(keys, sum(map(len, places)))
    size = parts[0].total.shape[1]
    total, products = np.zeros((grouped.count, size)), np.zeros((grouped.count, size, size))
    np.add.at(
        total,
        grouped.codes,
        np.concatenate([part.total[rows] for part, rows in zip(parts, places, strict=True)]),
    )
    np.add.at(
        products,
        grouped.codes,
        np.concatenate([part.products[rows] for part, rows in zip(parts, places, strict=True)]),
    )
    return Part(grouped.keys, np.zeros(grouped.count, np.int64), total, products, [])
