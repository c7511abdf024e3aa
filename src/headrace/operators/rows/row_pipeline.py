"""Row pipeline of a query, before any window state: filters, lookup joins and semijoins with stored relations, applied
to batches of rows, and the evaluation of expressions on them.

Rows on which an expression fails leave the query, and are reported as rejected; other queries are not affected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression, columns_of
from headrace.algebra.expressions.expression_text import show
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import Ints
from headrace.operators.rows.filter_terms import Terms, terms_of
from headrace.operators.rows.lookup_join import Index, build, probe
from headrace.operators.rows.ordered_filter import OrderedFilter
from headrace.operators.rows.semijoin import Candidates, Membership, prepare, truth
from headrace.operators.scalar import Evaluation
from headrace.schema import Schema


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Keep the rows for which the predicate is true."""

    predicate: Expression

    def display(self) -> str:
        """As EXPLAIN shows it."""
        return f"keep rows where {show(self.predicate)}"

    @property
    def summary(self) -> str:
        """The same, since a filter has no shorter form."""
        return self.display()


@dataclass(frozen=True, slots=True)
class LookupJoin:
    """Join with a stored relation.

    `left_keys[i] = right_keys[i]` find candidates (right keys read the relation's plain columns); `residual` decides over
    the pairs; `keep_unmatched` makes it a LEFT join. The relation's columns arrive as `alias.column`.
    """

    relation: str
    alias: str
    schema: Schema
    left_keys: tuple[Expression, ...]
    right_keys: tuple[Expression, ...]
    residual: Expression | None
    keep_unmatched: bool

    def display(self) -> str:
        """As EXPLAIN shows it."""
        pairs = zip(self.left_keys, self.right_keys, strict=True)
        on = " and ".join(f"{show(left)} = {self.alias}.{show(right)}" for left, right in pairs)
        return f"{self.summary} on {on or 'every row'}"

    @property
    def summary(self) -> str:
        """The relation, without the look-up condition."""
        return f"{'left join' if self.keep_unmatched else 'join'} relation {self.relation}"


RowStep: TypeAlias = RowFilter | LookupJoin | Membership


@dataclass(frozen=True, slots=True)
class Prepared:
    """A relation indexed for one look-up."""

    table: pa.Table
    index: Index


@dataclass(slots=True)
class RowPipeline:
    """Applies row steps to batches; collects rejected rows. One per task and operator."""

    steps: tuple[RowStep, ...]
    prepared: Mapping[int, Prepared | Candidates]
    rejected: list[Rejected]
    ordered: Mapping[int, tuple[int, OrderedFilter]]
    """By the index of a first step, the steps that are evaluated term by term: the index after the last one, and their terms."""

    @staticmethod
    def of(steps: tuple[RowStep, ...], relations: Mapping[str, pa.Table]) -> RowPipeline:
        """Index the relations that the steps look up."""
        prepared = {
            index: _prepare(step, relations[step.relation])
            if isinstance(step, LookupJoin)
            else prepare(step, relations[step.relation])
            for index, step in enumerate(steps)
            if not isinstance(step, RowFilter)
        }
        ordered = {}
        for first, (end, terms) in conjunctions_of(steps).items():
            candidates = {
                step.name: ready
                for index, step in enumerate(steps[first:end], first)
                if isinstance(step, Membership) and isinstance(ready := prepared[index], Candidates)
            }
            ordered[first] = end, OrderedFilter.of(terms, candidates)
        return RowPipeline(steps, prepared, [], ordered)

    def apply(self, batch: Batch) -> Batch:
        """The rows that remain, with the columns that were joined."""
        after = 0
        for index, step in enumerate(self.steps):
            if index < after:
                continue
            if batch.rows == 0:
                return _without_rows(batch, self.steps[index:])
            ready = self.prepared.get(index)
            if index in self.ordered:
                after, terms = self.ordered[index]
                batch, rejected = terms.apply(batch)
                self.rejected += [rejected] if rejected is not None else []
            elif isinstance(step, RowFilter):
                batch = self._filter(batch, step.predicate)
            elif isinstance(step, LookupJoin) and isinstance(ready, Prepared):
                batch = self._lookup_join(batch, step, ready)
            elif isinstance(step, Membership) and isinstance(ready, Candidates):
                batch = self._semijoin(batch, step, ready)
        return batch

    def evaluate(self, batch: Batch, expressions: Sequence[Expression]) -> tuple[Batch, list[pa.Array]]:
        """Values of expressions; rows on which one fails are rejected and absent from both."""
        evaluation = Evaluation(batch.readable, batch.rows)
        values = [evaluation.values(expression) for expression in expressions]
        failed = evaluation.errors
        if failed is None:
            return batch, values
        self._reject(batch, failed.mask, failed.reasons)
        keep = pa.array(~failed.mask)
        return batch.where(~failed.mask), [value.filter(keep) for value in values]

    def _filter(self, batch: Batch, predicate: Expression) -> Batch:
        evaluation = Evaluation(batch.columns, batch.rows)
        keep = evaluation.mask(predicate)
        if evaluation.errors is not None:
            self._reject(batch, evaluation.errors.mask, evaluation.errors.reasons)
            keep = keep & ~evaluation.errors.mask
        return batch.where(keep)

    def _reject(self, batch: Batch, mask: np.ndarray, reasons: Mapping[int, str]) -> None:
        rows = np.flatnonzero(mask)
        self.rejected.append(
            Rejected(batch.at[rows], batch.position[rows], tuple(reasons[row] for row in rows.tolist()))
        )

    def _semijoin(self, batch: Batch, step: Membership, candidates: Candidates) -> Batch:
        column, failed = truth(step, candidates, batch)
        batch = batch.with_columns({step.name: column})
        if not failed:
            return batch
        mask = np.zeros(batch.rows, bool)
        mask[list(failed)] = True
        self._reject(batch, mask, failed)
        return batch.where(~mask)

    def _lookup_join(self, batch: Batch, step: LookupJoin, prepared: Prepared) -> Batch:
        batch, keys = self.evaluate(batch, step.left_keys)
        left, right = probe(prepared.index, keys, batch.rows)
        joined = _paired(batch, step, prepared.table, left, right)
        if step.residual is not None:
            evaluation = Evaluation(joined.columns, joined.rows)
            match = evaluation.mask(step.residual)
            if evaluation.errors is not None:
                self._reject(joined, evaluation.errors.mask, evaluation.errors.reasons)
                match &= ~evaluation.errors.mask
            joined, left = joined.where(match), left[match]
        if not step.keep_unmatched:
            return joined
        return _with_unmatched(batch, joined, left, step)


def conjunctions_of(steps: tuple[RowStep, ...]) -> Mapping[int, tuple[int, Terms]]:
    """By the index of its first step, each run of filters and tests of membership that has terms, and the index after it."""
    key = tuple(map(id, steps))
    cached = _conjunctions.get(key)
    if cached is None:
        if len(_conjunctions) >= _MOST_CONJUNCTIONS:  # those in use are soon added again
            _conjunctions.clear()
        cached = _conjunctions[key] = steps, dict(_conjunctions_in(steps))
    return cached[1]


_MOST_CONJUNCTIONS: Final = 50_000
_conjunctions: Final[dict[tuple[int, ...], tuple[tuple[RowStep, ...], Mapping[int, tuple[int, Terms]]]]] = {}
"""By the identities of the steps, which are kept alive: pipelines are made for each task of each epoch."""


def _conjunctions_in(steps: tuple[RowStep, ...]) -> Iterator[tuple[int, tuple[int, Terms]]]:
    begins = [
        index
        for index, step in enumerate(steps)
        if isinstance(step, LookupJoin)
        or index == 0
        or isinstance(steps[index - 1], LookupJoin)
        or (isinstance(step, RowFilter) and isinstance(steps[index - 1], RowFilter))
    ]
    for first, end in pairwise([*begins, len(steps)]):
        predicates = [step.predicate for step in steps[first:end] if isinstance(step, RowFilter)]
        memberships = [step for step in steps[first:end] if isinstance(step, Membership)]
        terms = terms_of(predicates, memberships)
        if terms is not None:
            yield first, (end, terms)


def columns_read(steps: Sequence[RowStep]) -> frozenset[str]:
    """Every column the steps read, of the stream or of relations joined earlier."""
    read: frozenset[str] = frozenset()
    for step in steps:
        if isinstance(step, RowFilter):
            read |= columns_of(step.predicate)
            continue
        value = (step.value,) if isinstance(step, Membership) else ()
        for expression in (*step.left_keys, step.residual, *value):
            read |= columns_of(expression) if expression is not None else frozenset()
    return read


def joins_of(steps: Sequence[RowStep]) -> tuple[LookupJoin | Membership, ...]:
    """The steps that look up stored relations, without the filters between them."""
    if not steps or (
        len(steps) == 1 and isinstance(steps[0], RowFilter)
    ):  # the common case, called for ten thousand queries
        return ()
    return tuple(step for step in steps if not isinstance(step, RowFilter))


def relations_of(steps: Sequence[RowStep]) -> tuple[str, ...]:
    """The relations that the steps look up, each once."""
    return tuple(dict.fromkeys(step.relation for step in steps if not isinstance(step, RowFilter)))


def _without_rows(batch: Batch, steps: Sequence[RowStep]) -> Batch:
    """A batch without rows, with the columns that the steps would have added."""
    added: dict[str, pa.Array] = {}
    for step in steps:
        if isinstance(step, Membership):
            added[step.name] = pa.nulls(0, pa.bool_())
        elif isinstance(step, LookupJoin):
            added |= {f"{step.alias}.{field.name}": pa.nulls(0, field.type) for field in step.schema.arrow()}
    return batch.with_columns(added)


def _prepare(step: LookupJoin, table: pa.Table) -> Prepared:
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    evaluation = Evaluation(columns, table.num_rows)
    return Prepared(table, build([evaluation.values(key) for key in step.right_keys], table.num_rows))


def _paired(batch: Batch, step: LookupJoin, table: pa.Table, left: Ints, right: Ints) -> Batch:
    rows = batch.take(left)
    picked = pa.array(right)
    extra = {
        f"{step.alias}.{name}": table.column(name).combine_chunks().take(picked)
        for name in table.column_names
    }
    return rows.with_columns(extra)


def _with_unmatched(batch: Batch, joined: Batch, matched: Ints, step: LookupJoin) -> Batch:
    is_unmatched = np.ones(batch.rows, bool)
    is_unmatched[matched] = False
    if not is_unmatched.any():
        return joined
    unmatched = np.flatnonzero(is_unmatched)
    rows = batch.take(unmatched)
    nulls = {
        f"{step.alias}.{field.name}": pa.nulls(len(unmatched), field.type) for field in step.schema.arrow()
    }
    columns = {**rows.columns, **nulls}
    order = np.argsort(np.concatenate([matched, unmatched]), kind="stable")
    picked = pa.array(order)
    return Batch(
        {
            name: pa.concat_arrays([joined.columns[name], columns[name]]).take(picked)
            for name in joined.columns
        },
        np.concatenate([joined.at, rows.at])[order],
        np.concatenate([joined.position, rows.position])[order],
    )
