"""The answer of a question over the archive: it reads the shortest prefixes of the archive's runs that give the accepted error,
or as much as the time allows, and shows the error and how much was read.

The prefixes grow until every value of the answer is accurate enough: what a prefix has is never read twice. The first one is
large enough for a variance to mean something; from its errors the next one is computed. With a limit of time a step takes at most
half of what is left of it, as the one before was measured, so that the load of the machine decides how much is read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Column, columns_of
from headrace.algebra.query import Ago, Bounds, Query
from headrace.archive.estimates import Estimates, most_missed
from headrace.dataclass import dataclass
from headrace.operators.base.sort_ranks import sort_rank
from headrace.operators.scalar.evaluation.user_functions import registered
from headrace.runtime.home.home import Home
from headrace.runtime.invoke.questions.archived_rows import ArchivedRows
from headrace.runtime.invoke.questions.clauses import KEPT, Question, Side, error_of, names_of, question_of
from headrace.runtime.invoke.questions.sampled_keys import SampledKeys
from headrace.runtime.invoke.questions.sampled_rows import Groups, SampledRows
from headrace.runtime.invoke.questions.summaries import Summary, summary_of
from headrace.runtime.plan.user_functions import callable_by_name
from headrace.runtime.samples import run_samples
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, FOREVER, SECOND, Duration, Instant

_FIRST_ROWS: Final = 4096
"""Rows of the first prefixes together, at least: from fewer a variance is a guess."""
_AIMED: Final = 0.95
"""The share of the accepted error that the next prefix is computed for: its own estimate of the error varies."""
_MORE: Final = 8.0
"""How many times as many rows are read next, about, where an error is not known: what is rare shows none."""
_OF_TIME: Final = 0.5
"""The share of the time left that a step may take."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What is accepted: an error of each value as a fraction of it, 0 for none; and how long the answer may take."""

    within: Fraction = Fraction(0)
    duration: Duration | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """The answer of a question: its rows, and how many rows of the archive were read of how many.

    `error` is the greatest of its values' errors as a part of the value. `missing` is the greatest size of a group without
    an answer, with 95 %; empty where every group is there. `failed` rows were left out.
    """

    table: pa.Table
    read: int
    rows: int
    error: float
    missing: str
    failed: int
    summary: str = ""
    cached: int = 0
    """Rows of runs whose sums were known from an earlier question."""

    def __str__(self) -> str:
        """How it was read, in words."""
        text = f"read {self.read:,} of {self.rows:,} archived rows"
        if self.cached:
            text += f", sums of {self.cached:,} others from earlier questions"
        if self.summary:
            text += f", and {self.summary}"
        if math.isinf(self.error):
            text += ", the error of some values is greater than they are"
        elif self.error:
            text += f", error at most {_percent(self.error)}"
        if self.missing:
            text += f"; a group that is missing has at most {self.missing}"
        if self.failed:
            text += f"; {self.failed:,} rows on which an expression failed are left out"
        return text


class Sample(Protocol):
    """What a question has read of its streams."""

    @property
    def sources(self) -> tuple[ArchivedRows, ...]:
        """The streams."""

    @property
    def summary(self) -> Summary | None:
        """What is known without reading rows."""

    @property
    def share(self) -> float:
        """The share that was read of what is drawn."""

    @property
    def failed(self) -> int:
        """Rows left out, since an expression failed on them."""

    def extend(self, share: float, is_due: Callable[[], bool]) -> None:
        """Read on up to a share of each run, or until time is due."""

    def answer(self) -> tuple[Groups, dict[str, Estimates]]:
        """The groups, and the estimates of each column of the select list."""

    def finish(self) -> None:
        """Cache what later questions may use."""


def asked(
    home: Home,
    manifest: Manifest,
    query: Query,
    accepted: Accepted,
    clock: Callable[[], float] = time.perf_counter,
) -> Asked:
    """The answer of a question, each value with an error that is accepted, or the least that the time allows.

    Raises `UnsupportedQuery` where the error is not known from a part of the rows, and `UserError` where there is no archive to read.
    """
    started = clock()
    deadline = math.inf if accepted.duration is None else started + accepted.duration / SECOND
    question = question_of(query, home.catalog.stream)
    with registered(callable_by_name(home.catalog.functions)):
        sample = _sample(home, manifest, question)
        is_exact = not accepted.within and deadline == math.inf
        steps, share, before = _Steps(sample), 1.0 if is_exact else _first_share(sample), 0.0
        while True:
            start, rows = clock(), steps.read
            sample.extend(share, lambda: clock() > deadline)
            groups, estimates = sample.answer()
            before = share
            needed = steps.needed(estimates.values(), float(accepted.within))
            if steps.is_whole or needed <= before:
                break
            now = clock()
            if deadline < math.inf:
                rate = max(steps.read - rows, 1) / max(now - start, 1e-6)
                needed = min(needed, steps.affordable(rate * _OF_TIME * max(deadline - now, 0)))
            if needed <= before:
                break
            share = needed
        sample.finish()
        return _asked(question, sample, groups, estimates)


def explained(home: Home, manifest: Manifest, query: Query) -> str:
    """How a question would be answered: what is drawn of which stream, and the sizes of the samples that can be read."""
    question = question_of(query, home.catalog.stream)
    sample = _sample(home, manifest, question)
    lines = ["question over the archive: historical, answered once", f"  sample of {question.design}"]
    for source in sample.sources:
        shares = source.shares()
        samples = sum(run.first is not None for run in source.runs)
        files = f"{len(source.runs) - samples:,} runs"
        if samples:
            files += f" and {samples:,} samples of {run_samples.GROUP} epochs each"
        lines.append(
            f"  reads {source.side.stream.name}: {files}, {source.rows:,} rows;"
            f" samples from {source.rows_at(shares[0]):,} rows on"
        )
        if source.copied is not None:
            lines.append(f"  reduced by {source.side.scan.reducer}, {source.copied}; the archive after it")
        if source.least_stored < 1:
            lines.append(f"  of some runs {_percent(source.least_stored)} of the rows are left (reduce)")
    if sample.summary is not None:
        lines.append(f"  {sample.summary}, the rows before and after them from the archive")
    if question.per_key is not None:
        lines.append(f"  a row for each {question.sides[0].stream.blocks_by}, complete, before the estimates")
    if len(question.sides) > 1:
        lines.append("  pairs of rows with equal keys, complete, before the estimates")
    return "\n".join(lines)


def _sample(home: Home, manifest: Manifest, question: Question) -> Sample:
    now = max((manifest.stream(side.stream.name).greatest for side in question.sides), default=BEGINNING)
    between = _between(question.bounds, now)
    summary = summary_of(home, manifest, question, between)
    without = None if summary is None else (summary.begin, summary.end)
    sources = [
        ArchivedRows(home, side, _columns(question, side), *between, without).open(manifest)
        for side in question.sides
    ]
    if question.by_key:
        return SampledKeys.of(question, sources)
    return SampledRows.of(question, sources[0], summary)


def _columns(question: Question, side: Side) -> list[str]:
    """The stored columns that are needed of a stream."""
    prefix = f"{side.scan.alias}."
    names = {name for expression in names_of(question) for name in columns_of(expression)}
    if side.key is not None:
        names.add(side.key)
    return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def _between(bounds: Bounds | None, now: Instant) -> tuple[Instant, Instant]:
    """The first and the last instant of the question."""
    if bounds is None:
        return BEGINNING, FOREVER
    begin, end = (
        now - bound.duration if isinstance(bound, Ago) else bound for bound in (bounds.begin, bounds.end)
    )
    return begin, end


def _first_share(sample: Sample) -> float:
    """The least share with enough rows."""
    return next(
        (share for share in _shares(sample) if _rows_at(sample, share) >= _FIRST_ROWS),
        1.0,
    )


def _shares(sample: Sample) -> list[float]:
    """The shares of which some run has a prefix, ascending."""
    return sorted({share for source in sample.sources for share in source.shares()})


def _rows_at(sample: Sample, share: float) -> int:
    return sum(source.rows_at(share) for source in sample.sources)


@dataclass(frozen=True, slots=True)
class _Steps:
    """The choice of how much is read next."""

    sample: Sample

    @property
    def read(self) -> int:
        """Rows that are in the sample."""
        return sum(source.sampled for source in self.sample.sources)

    @property
    def is_whole(self) -> bool:
        """Whether every row that is stored was read."""
        return all(source.is_whole for source in self.sample.sources)

    def needed(self, answer: Iterable[Estimates], within: float) -> float:
        """The least share from which the answer should be accurate enough; 0 if it is."""
        factor = 1.0
        if not within:
            return 1.0
        for estimates in answer:
            if (estimates.error == np.inf).any():
                factor = max(factor, _MORE)
            known = estimates.known & np.isfinite(estimates.value) & np.isfinite(estimates.error)
            allowed = within * np.abs(estimates.value[known])
            error = estimates.error[known]
            if ((error > 0) & (allowed == 0)).any():
                return 1.0
            is_open = error > allowed
            if is_open.any():
                factor = max(factor, float((error[is_open] / (_AIMED * allowed[is_open])).max()) ** 2)
        if factor == 1.0:
            return 0.0
        # errors fall with the root of n / (1 - n / N)
        share = self.sample.share
        if not share:
            return 1.0
        wanted = 1 / (1 + (1 / share - 1) / factor)
        rows = sum(source.rows for source in self.sample.sources)
        higher = [
            candidate for candidate in _shares(self.sample) if _rows_at(self.sample, candidate) > self.read
        ]
        return next(
            (candidate for candidate in higher if _rows_at(self.sample, candidate) >= wanted * rows), 1.0
        )

    def affordable(self, rows: float) -> float:
        """The greatest share that takes so many more rows; 0 where none does."""
        return max(
            (share for share in _shares(self.sample) if _rows_at(self.sample, share) - self.read <= rows),
            default=0.0,
        )


def _asked(
    question: Question, sample: Sample, groups: Groups, estimates_by_column: Mapping[str, Estimates]
) -> Asked:
    """The rows of the answer: each value followed by its error, and the share that was read, in the order of the groups."""
    places = {key.name: number for number, key in enumerate(question.keys)}
    columns: dict[str, pa.Array] = {}
    for column in question.columns:
        if isinstance(column.expression, Column) and column.expression.name in places:
            columns[column.name] = groups.keys[places[column.expression.name]]
            continue
        estimates = estimates_by_column[column.name]
        has_error = estimates.known | np.isinf(estimates.error)
        columns[column.name] = pa.array(estimates.value, mask=~estimates.known)
        columns[error_of(column.name)] = pa.array(estimates.error, mask=~has_error)
    read, rows = (sum(getattr(source, name) for source in sample.sources) for name in ("read", "rows"))
    columns[KEPT] = pa.array([sample.share] * groups.count, pa.float64())
    table = pa.table(columns)
    if groups.count > 1:
        order = np.lexsort([sort_rank(key, False, True) for key in reversed(groups.keys)])
        table = table.take(pa.array(order))
    missing = _missing(question, sample) if question.keys else ""
    known = "" if sample.summary is None else str(sample.summary)
    cached = sum(run.sampled for source in sample.sources for run in source.runs if run.is_cached)
    return Asked(
        table, read, rows, _greatest(estimates_by_column.values()), missing, sample.failed, known, cached
    )


def _greatest(all_estimates: Iterable[Estimates]) -> float:
    """The greatest error as a part of its value; infinite where a value is 0 and its error is not."""
    greatest = 0.0
    for estimates in all_estimates:
        error, value = estimates.error, np.abs(np.where(estimates.known, estimates.value, 0.0))
        known = error > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = error[known] / value[known]
        greatest = max(greatest, float(parts.max(initial=0.0)))
    return greatest


def _missing(question: Question, sample: Sample) -> str:
    """The size of a group of which, with 95 %, a part would be in the sample of the runs that were read least."""
    least = sample.share if question.by_key else sample.sources[0].least_read
    if least >= 1:
        return ""
    drawn = f"values of {question.sides[0].stream.blocks_by}" if question.by_key else "rows"
    return f"{most_missed(least):,.0f} {drawn}"


def _percent(part: float) -> str:
    return f"{100 * part:.2g} %"
