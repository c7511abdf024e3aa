"""Sample of a stream's rows, as a question has read it: sums of the terms by run and group, the values of percentiles, and the
estimates from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import conjunction
from headrace.archive.estimates import Doubles, Estimates, Sums, Weighted, of_rows, quantile
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import Ints, compact, flat, group, picked
from headrace.operators.rows.row_pipeline import RowFilter, RowPipeline
from headrace.runtime.invoke.questions import stored_sums
from headrace.runtime.invoke.questions.archived_rows import ArchivedRows, ArchivedRun, Extent
from headrace.runtime.invoke.questions.clauses import Question
from headrace.runtime.invoke.questions.in_threads import ordered, processors
from headrace.runtime.invoke.questions.run_sums import Part, RunSums, Signature, concatenated
from headrace.runtime.invoke.questions.stored_sums import StoredSums, folder_of
from headrace.runtime.invoke.questions.summaries import Summary
from headrace.runtime.invoke.questions.terms import Contributed, Terms, doubles, percentiles_of

_ALONE: Final = 1 << 20
"""Rows up to which one thread reads them."""
_MOST_VALUES: Final = 1 << 26
"""Values of percentiles that are held in memory."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of an answer: an array for each key. There is one without keys."""

    keys: tuple[pa.Array, ...]
    count: int


@dataclass(slots=True)
class SampledRows:
    """The rows of a question over one stream."""

    question: Question
    source: ArchivedRows
    terms: Terms
    steps: tuple[RowFilter, ...]
    summary: Summary | None = None
    """What is known without reading rows."""
    parts: list[Part] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    sums: RunSums | None = None
    """Those that are cached for questions like this; None where none are."""
    stored: StoredSums | None = None

    @staticmethod
    def of(question: Question, source: ArchivedRows, summary: Summary | None) -> SampledRows:
        """Nothing read yet."""
        factors = [*question.sides[0].where, *question.where]
        steps = (RowFilter(conjunction(factors)),) if factors else ()
        terms = Terms.of(question.aggregates)
        sample = SampledRows(question, source, terms, steps, summary, sums=RunSums.of(question, source))
        source.recall = sample._recall
        sample._recall(source.runs)
        return sample

    def _recall(self, opened: Sequence[ArchivedRun]) -> None:
        """Take what is known of runs that were opened: in this process, or stored."""
        if self.sums is None:
            return
        self.parts += self.sums.known(opened)
        left = [run for run in opened if not run.is_cached and self.source.has_all_of(run)]
        stored = self._stored_sums(self.sums.signature) if left else None
        if stored is not None:
            known = {run.identity: run for run in left if run.identity in stored.runs}
            self.parts += stored.known({name: run.number for name, run in known.items()})
            for run in known.values():
                run.recall()

    def _stored_sums(self, signature: Signature) -> StoredSums | None:
        """What is stored for questions like this, read once."""
        folder = folder_of(self.source.side.stream.name, signature)
        if self.stored is None and folder is not None:
            self.stored = StoredSums.of(self.source.home, folder, len(self.terms.items))
        return self.stored

    def finish(self) -> None:
        """Cache what later questions may use, and store it where it is much."""
        if self.failed or self.sums is None or not self.parts:
            return
        self.sums.remember(self.parts)
        whole = [run for run in self.source.runs if run.is_whole]
        if sum(run.prefixes.rows[-1] for run in whole) < stored_sums.LEAST_ROWS:
            return
        stored = self._stored_sums(self.sums.signature)
        if stored is not None:
            left = [run for run in whole if run.identity not in stored.runs]
            new = self.sums.remembered(left)
            if sum(run.prefixes.rows[-1] for run in left if run.identity in new) >= stored_sums.LEAST_ROWS:
                stored.write(new, [run.identity for run in self.source.runs], self.question.keys)

    @property
    def sources(self) -> tuple[ArchivedRows, ...]:
        """The stream that is read."""
        return (self.source,)

    @property
    def share(self) -> float:
        """The share of the rows that was read."""
        return self.source.sampled / self.source.rows if self.source.rows else 1.0

    @property
    def failed(self) -> int:
        """Rows left out, since an expression failed on them."""
        replaced = np.array(sorted(self.source.replaced), np.int64)
        return sum(rejected.without(replaced).rows for rejected in self.rejected)

    def extend(self, share: float, is_due: Callable[[], bool]) -> None:
        """Read on up to a share of each run, or until time is due."""
        is_much = (
            self.source.rows_at(share) - self.source.sampled > _ALONE
            and not self.source.home.catalog.functions
        )
        for part, rejected in ordered(
            self._part, self.source.extents(share, is_due), processors() if is_much else 1
        ):
            self.parts.append(part)
            self.rejected += rejected
            if sum(len(value) for held in self.parts for _, value in held.values) > _MOST_VALUES:
                raise UserError(
                    f"a percentile of more than {_MOST_VALUES:,} values does not fit in memory",
                    remedy="Accept a larger error, or choose fewer rows with WHERE or BEGIN … END.",
                )
        self.parts = [part.without(self.source.replaced) for part in self.parts]

    def _part(self, extents: Sequence[Extent]) -> tuple[Part, list[Rejected]]:
        """The sums of some rows, and those of them on which an expression failed."""
        pipeline = RowPipeline.of(self.steps, {})
        batch = pipeline.apply(self.source.batch(extents))
        keys = [key.expression for key in self.question.keys]
        calls = [call for _, call in percentiles_of(self.question)]
        also = [part for call in calls for part in (call.argument, call.condition) if part is not None]
        contributed = self.terms.contributions(pipeline, batch, [*keys, *also])
        run, first = contributed.batch.position, min(extent.number for extent in extents)
        grouped = group(contributed.values[: len(keys)], contributed.batch.rows)
        count, codes = max(1, grouped.count), grouped.codes
        pairs = np.arange(grouped.count)
        if len(extents) > 1:
            most = max(extent.number for extent in extents) + 1 - first
            codes, pairs = compact((run - first) * count + codes, most * count)
        of_group = pairs % count
        part_keys = tuple(picked(flat(key), of_group) for key in grouped.keys)
        total, products = self._sums(contributed, codes, len(pairs))
        values = self._values(contributed.values[len(keys) :], codes)
        return Part(part_keys, pairs // count + first, total, products, values), pipeline.rejected

    def _sums(self, contributed: Contributed, codes: Ints, count: int) -> tuple[Doubles, Doubles]:
        """Sums of the terms and of their products, by pair. Most products are sums that are known: 1 times a value is the value."""
        terms, size = self.terms.items, len(self.terms.items)
        total, products = np.zeros((count, size)), np.zeros((count, size, size))
        for number, column in enumerate(contributed.terms):
            total[:, number] = _sum(column, codes, count)
        for one, term in enumerate(terms):
            for other in range(one, size):
                by = terms[other]
                same = (term.argument, term.condition) == (by.argument, by.condition)
                if (same and not term.valued) or _is_every_row(term.argument, term.condition):
                    product = total[:, other]
                elif (same and not by.valued) or _is_every_row(by.argument, by.condition):
                    product = total[:, one]
                else:
                    product = _sum(contributed.terms[one] * contributed.terms[other], codes, count)
                products[:, one, other] = products[:, other, one] = product
        return total, products

    def _values(self, evaluated: Sequence[pa.Array], codes: Ints) -> list[tuple[Ints, Doubles]]:
        """The values of each percentile, with their pairs."""
        left, values = iter(evaluated), []
        for _, call in percentiles_of(self.question):
            argument = next(left)
            counts = argument.is_valid().to_numpy(zero_copy_only=False)
            if call.condition is not None:
                counts = counts & next(left).fill_null(False).to_numpy(zero_copy_only=False)
            values.append((codes[counts], doubles(argument)[counts]))
        return values

    def answer(self) -> tuple[Groups, dict[str, Estimates]]:
        """The groups, and the estimates of each column of the select list."""
        pairs = [len(part.run) for part in self.parts]
        known = () if self.summary is None else (self.summary,)
        keys = concatenated(self.question.keys, [part.keys for part in (*self.parts, *known)])
        grouped = group(keys, sum(pairs) + sum(len(summary.total) for summary in known))
        groups = Groups(grouped.keys, grouped.count if self.question.keys else 1)
        code, of_known = grouped.codes[: sum(pairs)], grouped.codes[sum(pairs) :]
        stratum_of_run, population, sample = self._strata()
        run = np.concatenate([np.zeros(0, np.int64), *(part.run for part in self.parts)])
        stratum, size = stratum_of_run[run], len(self.terms.items)
        total = np.zeros((len(population), groups.count, size))
        products = np.zeros((len(population), groups.count, size, size))
        if self.parts:
            np.add.at(total, (stratum, code), np.concatenate([part.total for part in self.parts]))
            of_pairs = np.concatenate([part.products for part in self.parts])
            np.add.at(products, (stratum, code), of_pairs)
        totals = of_rows(Sums(population, sample, total, products))
        for summary in known:
            np.add.at(totals.value, of_known, summary.total)
        estimates = self.terms.estimates(self.question, totals, self.source.least_read)
        of_strata = _Strata(code, stratum, population, sample)
        estimates |= self._percentiles(np.cumsum([0, *pairs])[:-1], of_strata, groups.count)
        return groups, self._without_errors_of_whole(groups, estimates)

    def _without_errors_of_whole(
        self, groups: Groups, estimates: dict[str, Estimates]
    ) -> dict[str, Estimates]:
        """The estimates, exact for groups of which every row was read: of an archive that is reduced by counts, and read whole."""
        whole_groups = self.source.whole_groups
        if whole_groups is None or not self.source.is_whole:
            return estimates
        whole = whole_groups.are(self.question.keys, groups.keys, groups.count)
        return {
            name: replace(found, error=np.where(whole & found.known, 0.0, found.error))
            for name, found in estimates.items()
        }

    def _percentiles(self, starts: Ints, strata: _Strata, count: int) -> dict[str, Estimates]:
        """The percentiles of each group."""
        estimates = {}
        for number, (name, call) in enumerate(percentiles_of(self.question)):
            assert call.share is not None
            held = [part.values[number] for part in self.parts]
            pair = np.concatenate(
                [
                    np.zeros(0, np.int64),
                    *(pairs + start for (pairs, _), start in zip(held, starts, strict=True)),
                ]
            )
            value = np.concatenate([np.zeros(0), *(values for _, values in held)])
            estimates[name] = _percentile(value, pair, strata, count, call.share)
        return estimates

    def _strata(self) -> tuple[Ints, Doubles, Doubles]:
        """The stratum of each run, and N and n of each stratum: the runs of which the same share was read."""
        runs = self.source.runs
        shares = [run.prefixes.shares[run.done] for run in runs]
        known, stratum = np.unique(np.array(shares, np.float64), return_inverse=True)
        of_run = np.zeros(self.source.opened, np.int64)
        has_rows = np.flatnonzero(np.bincount(stratum, [run.sampled for run in runs], len(known)))
        if len(has_rows):  # a stratum of which nothing is left is counted with the next one
            next_with_rows = has_rows[np.minimum(np.searchsorted(has_rows, stratum), len(has_rows) - 1)]
            stratum = next_with_rows
        population = np.bincount(stratum, [run.prefixes.population for run in runs], len(known))
        sample = np.bincount(stratum, [run.sampled for run in runs], len(known))
        of_run[[run.number for run in runs]] = stratum
        return of_run, population.astype(np.float64), sample.astype(np.float64)


@dataclass(frozen=True, slots=True)
class _Strata:
    """The group and the stratum of each pair of a run and a group; N and n of each stratum."""

    group: Ints
    stratum: Ints
    population: Doubles
    sample: Doubles


def _percentile(value: Doubles, pair: Ints, of: _Strata, count: int, share: float) -> Estimates:
    """The percentile of each of `count` groups; `pair` is that of each value."""
    scale = np.divide(of.population, of.sample, out=np.ones_like(of.sample), where=of.sample > 0)
    stratum, of_group = of.stratum[pair], of.group[pair]
    order = np.argsort(of_group, kind="stable")
    edges = np.searchsorted(of_group[order], np.arange(count + 1))
    is_part = bool((of.sample < of.population).any())
    values, errors = np.full(count, np.nan), np.full(count, np.inf if is_part else 0.0)
    for number, (low, high) in enumerate(pairwise(edges)):
        rows = order[low:high]
        if low < high:
            values[number], errors[number] = quantile(
                Weighted(value[rows], scale[stratum[rows]], stratum[rows], of.population, of.sample), share
            )
    return Estimates(values, errors, np.diff(edges) > 0)


def _sum(column: Doubles, codes: Ints, count: int) -> Doubles:
    """The sum of each of `count` groups."""
    if count == 1:
        return np.array([column.sum()])
    return np.bincount(codes, column, count).astype(np.float64, copy=False)


def _is_every_row(argument: object, condition: object) -> bool:
    """Whether a term is COUNT(*): it contributes 1 for each row."""
    return argument is None and condition is None
