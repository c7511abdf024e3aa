"""Semijoin: `x IN (SELECT y FROM r WHERE …)` and EXISTS over a stored relation, evaluated for each row of a stream as a
column of truth values.

SQL's three values: true if a row matches; else unknown if x is NULL and there is a candidate, or a candidate's y is
NULL; else false. Candidates are the relation's rows that pass the subquery's WHERE. Hash indexes find them; what
depends only on the relation's rows is computed once for each scanner (`prepare`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression
from headrace.algebra.expressions.expression_text import show
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import Ints
from headrace.operators.rows.lookup_join import Index, build, probe
from headrace.operators.scalar import Evaluation
from headrace.operators.scalar.evaluation.failing import can_fail


@dataclass(frozen=True, slots=True)
class Membership:
    """Adds the truth of IN, or of EXISTS without `tested_value`, as the column `name`.

    `left_keys[i] = right_keys[i]` (which, like `own` and `tested_value`, read the relation's plain columns) and `own`
    and `residual`, over the pairs, select the candidates; `value = tested_value` selects those that match.
    """

    name: str
    relation: str
    alias: str
    left_keys: tuple[Expression, ...]
    right_keys: tuple[Expression, ...]
    own: Expression | None
    residual: Expression | None
    value: Expression | None
    tested_value: Expression | None

    @property
    def parts(self) -> tuple[Expression, ...]:
        """All expressions that it evaluates."""
        optional = (self.own, self.residual, self.value, self.tested_value)
        return (*self.left_keys, *self.right_keys, *(part for part in optional if part is not None))

    @property
    def may_fail(self) -> bool:
        """Whether it may reject a row."""
        return any(can_fail(part) for part in self.parts)

    def display(self) -> str:
        """The test of a subquery of WHERE, and the rows of its relation."""
        pairs = zip(self.left_keys, self.right_keys, strict=True)
        tests = [f"{show(left)} = {self.alias}.{show(right)}" for left, right in pairs]
        tests += [show(part) for part in (self.own, self.residual) if part is not None]
        test = (
            "exists in"
            if self.value is None or self.tested_value is None
            else f"{show(self.value)} in {show(self.tested_value)} of"
        )
        where = f" where {' and '.join(tests)}" if tests else ""
        return f"{self.name}: {test} relation {self.relation}{where}"

    @property
    def summary(self) -> str:
        """The relation, without the test."""
        return f"test rows against relation {self.relation} ({self.name})"


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of the relation under an index; `reasons` are those on which the relation's own condition failed, and why."""

    table: pa.Table
    index: Index
    reasons: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Candidates:
    """A relation prepared for one step: its candidates, those with a value under it, those whose value is NULL."""

    all: _Rows
    valued: _Rows
    nulls: _Rows


Reasons = dict[int, str]


def prepare(step: Membership, table: pa.Table) -> Candidates:
    """Index the candidates."""
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    evaluation = Evaluation(columns, table.num_rows)
    keys = [evaluation.values(key) for key in step.right_keys]
    keep = np.ones(table.num_rows, bool) if step.own is None else evaluation.mask(step.own)
    values = pa.nulls(table.num_rows) if step.tested_value is None else evaluation.values(step.tested_value)
    reasons: dict[int, str] = {}
    if evaluation.errors is not None:
        keep = keep | evaluation.errors.mask
        reasons = dict(evaluation.errors.reasons)
    no_value = values.is_null().to_numpy(zero_copy_only=False)

    def under(rows: np.ndarray, by: Sequence[pa.Array]) -> _Rows:
        numbers = np.flatnonzero(rows)
        picked = pa.array(numbers)
        index = build([key.take(picked) for key in by], len(numbers))
        failed = {position: reasons[row] for position, row in enumerate(numbers.tolist()) if row in reasons}
        return _Rows(table.take(picked), index, failed)

    valued = under(keep & ~no_value, [*keys, values]) if step.tested_value is not None else under(keep, keys)
    return Candidates(under(keep, keys), valued, under(keep & no_value, keys))


def truth(step: Membership, candidates: Candidates, batch: Batch) -> tuple[pa.Array, Reasons]:
    """The step's column, and the rows on which it fails: those without a match for which the test of a candidate fails."""
    evaluation = Evaluation(batch.columns, batch.rows)
    keys = [evaluation.values(key) for key in step.left_keys]
    failed: Reasons = {}
    if step.tested_value is None or step.value is None:
        hit = _matching(step, candidates.all, keys, batch, np.arange(batch.rows), failed)
        unknown = np.zeros(batch.rows, bool)
    else:
        value = evaluation.values(step.value)
        hit = _matching(step, candidates.valued, [*keys, value], batch, np.arange(batch.rows), failed)
        absent = value.is_null().to_numpy(zero_copy_only=False)
        unknown = _matching(step, candidates.all, keys, batch, np.flatnonzero(~hit & absent), failed)
        unknown |= _matching(step, candidates.nulls, keys, batch, np.flatnonzero(~hit & ~absent), failed)
    failed = {row: reason for row, reason in failed.items() if not hit[row]}
    if evaluation.errors is not None:
        failed |= {
            row: evaluation.errors.reasons[row] for row in np.flatnonzero(evaluation.errors.mask).tolist()
        }
    return pa.array(hit, mask=unknown), failed


def _matching(
    step: Membership, rows: _Rows, keys: Sequence[pa.Array], batch: Batch, probing: Ints, failed: Reasons
) -> np.ndarray:
    """Which of the `probing` rows match a candidate; adds to `failed` those for which a candidate's test fails."""
    matches = np.zeros(batch.rows, bool)
    if not len(probing) or not rows.table.num_rows:
        return matches
    picked = pa.array(probing)
    first_only = step.residual is None and not rows.reasons
    if first_only and not keys:
        matches[probing] = True
        return matches
    left, right = probe(rows.index, [key.take(picked) for key in keys], len(probing))
    left = probing[left]
    if first_only:
        matches[left] = True
        return matches
    for index in np.flatnonzero(np.isin(right, list(rows.reasons))).tolist():
        failed.setdefault(int(left[index]), rows.reasons[int(right[index])])
    sound = ~np.isin(right, list(rows.reasons))
    left, right = left[sound], right[sound]
    if step.residual is not None and len(left):
        evaluation = Evaluation(_paired(step, rows.table, batch, left, right), len(left))
        match = evaluation.mask(step.residual)
        if evaluation.errors is not None:
            for index in np.flatnonzero(evaluation.errors.mask).tolist():
                failed.setdefault(int(left[index]), evaluation.errors.reasons[index])
            match &= ~evaluation.errors.mask
        left = left[match]
    matches[left] = True
    return matches


def _paired(step: Membership, table: pa.Table, batch: Batch, left: Ints, right: Ints) -> dict[str, pa.Array]:
    picked = pa.array(right)
    columns = dict(batch.take(left).columns)
    for name in table.column_names:
        columns[f"{step.alias}.{name}"] = table.column(name).combine_chunks().take(picked)
    return columns
