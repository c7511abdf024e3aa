"""Records of what one epoch measured (rows, bytes, lag, seconds; by stream, operator and piece of work), and of an
attempt at an epoch that failed. Status, metrics, logs and EXPLAIN show them, and the runtime adapts to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from operator import add
from typing import Any, Final, NamedTuple

from headrace.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class StreamObservation:
    """One stream in one epoch.

    `rows` were read, late ones too but not the rejected; `bytes` is their size in memory, in the columns that were read; `lag`
    is the arrival clock minus the punctuation, in microseconds. `keep` is the sample rate of queries WITH SHEDDING, `shed` how
    many rows they did not get: 0 where there is no such query.
    """

    rows: int = 0
    bytes: int = 0
    late: int = 0
    rejected: int = 0
    punctuation: int | None = None
    lag: int | None = None
    keep: float = 1.0
    shed: int = 0


class OperatorObservation(NamedTuple):
    """One operator in one epoch: a tuple, as thousands are made, added and sent from every task.

    `rows_in` were offered, `rows_kept` passed its filter; `delta_rows` it made of them (a cell a pane and group, or rows);
    `state_rows` were merged and stored; `results` and `rejected` are rows. `open_windows` have not closed yet, up to the last
    one that holds a row: of all queries of its family with the same progress.
    """

    rows_in: int = 0
    rows_kept: int = 0
    delta_rows: int = 0
    state_rows: int = 0
    results: int = 0
    rejected: int = 0
    open_windows: int = 0
    groups: int = 0
    sparse_groups: int = 0
    """Counts of (pane, group) pairs of the rows, and of those with few rows; counted by operators that share no fold."""
    pairs: int = 0
    held: int = 0
    """Counts of (window, group) pairs it answered, and of their rows; of all queries of its family with the same progress."""
    probes: int = 0
    candidates: int = 0
    """Of a join: combinations of rows looked up in a side's state, and the rows there compared with them."""
    joinable: int = 0
    missing: float = 0.0
    variance: float = 0.0
    """Of a join with a limit of rows: stored rows that may still be joined; an estimate of the combinations of keys that are
    not in its sample, and its variance."""

    def plus(self, other: OperatorObservation) -> OperatorObservation:
        """The sum of two tasks' measurements."""
        return OperatorObservation._make(map(add, self, other))

    @property
    def selectivity(self) -> float | None:
        """Share of offered rows that passed the filter; None when none were offered."""
        return self.rows_kept / self.rows_in if self.rows_in else None


@dataclass(frozen=True, slots=True)
class WorkObservation:
    """A piece of work that operators may share, in one epoch, all tasks together.

    `rows_in` were offered to it once, however many share it; `rows_out` it passed on (cells of panes, deltas, results).
    `nanoseconds` is the sum of the wall clocks of all tasks, so it may exceed the elapsed time. `state_bytes` is its state
    after the epoch, in memory, which is the size of its runs on disk but for their headers.
    """

    rows_in: int = 0
    rows_out: int = 0
    nanoseconds: int = 0
    state_bytes: int = 0

    def plus(self, other: WorkObservation) -> WorkObservation:
        """The sum of two tasks' measurements."""
        return WorkObservation(
            self.rows_in + other.rows_in,
            self.rows_out + other.rows_out,
            self.nanoseconds + other.nanoseconds,
            self.state_bytes + other.state_bytes,
        )

    def __reduce__(self) -> tuple[type, tuple[int, ...]]:
        """A tuple: named fields, pickled one by one, would be most of the bytes."""
        return WorkObservation, (self.rows_in, self.rows_out, self.nanoseconds, self.state_bytes)


@dataclass(frozen=True, slots=True)
class FilterObservation:
    """The terms of one conjunction in one epoch: all tuples are by term, in the order in which the query has them.

    `order` is that of their evaluation on `rows`; each term got the rows that those before it left, `dropped` some, and took `nanoseconds`.
    All terms evaluated `sampled` rows, in `sample_nanoseconds`; `patterns` counts those that are dropped, by the set of terms that drop them,
    as the bits of a number. A row may count for several: a term evaluated `in_sample`, empty if all.
    """

    order: tuple[int, ...]
    rows: int
    evaluated: tuple[int, ...]
    dropped: tuple[int, ...]
    nanoseconds: tuple[int, ...]
    sampled: int = 0
    sample_nanoseconds: tuple[int, ...] = ()
    patterns: Mapping[int, int] = field(default_factory=dict)
    in_sample: tuple[int, ...] = ()

    def plus(self, other: FilterObservation) -> FilterObservation:
        """The sum of two batches or tasks; the order is the later one's."""
        patterns = dict(self.patterns)
        for bits, rows in other.patterns.items():
            patterns[bits] = patterns.get(bits, 0) + rows
        return FilterObservation(
            other.order,
            self.rows + other.rows,
            _sums(self.evaluated, other.evaluated),
            _sums(self.dropped, other.dropped),
            _sums(self.nanoseconds, other.nanoseconds),
            self.sampled + other.sampled,
            _sums(self.sample_nanoseconds, other.sample_nanoseconds),
            patterns,
            _sums(self.in_sample, other.in_sample),
        )

    def costs(self, least: int) -> tuple[float, ...]:
        """Nanoseconds a row, of each term; infinite where it was not measured.

        Of all rows that the term evaluated, if at least so many; else of the sample, less what a row costs more there, which is
        known of the other terms: a call of few rows costs more for each.
        """
        both = zip(self.nanoseconds, self.evaluated, strict=True)
        of_run = [spent / rows if rows >= least else float("inf") for spent, rows in both]
        rows_of = self.in_sample or (self.sampled,) * len(self.sample_nanoseconds)
        sums = zip(self.sample_nanoseconds, rows_of, strict=True)
        of_sample = [spent / max(1, rows) for spent, rows in sums]
        if not self.sampled:
            return tuple(of_run)
        more_each = [took - run for took, run in zip(of_sample, of_run, strict=True) if run < float("inf")]
        more = max(0.0, min(more_each, default=0.0))
        return tuple(
            min(run, sampled) if run < float("inf") else max(sampled - more, sampled / 10)
            for sampled, run in zip(of_sample, of_run, strict=True)
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON-able values."""
        return {**asdict(self), "patterns": {str(bits): rows for bits, rows in self.patterns.items()}}

    @staticmethod
    def of(fields: Mapping[str, Any]) -> FilterObservation:
        """The inverse of `as_dict`, after a round trip by JSON."""
        patterns = {int(bits): rows for bits, rows in fields["patterns"].items()}
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        return FilterObservation(**{**plain, "patterns": patterns})


@dataclass(frozen=True, slots=True)
class ProbeObservation:
    """The new rows of one side of a join in one epoch: tuples are by other side, in the order in which the query has them.

    `rows` probed the others in `order`, each only while all before had a partner for it: `probed` rows of them, of which `dropped` had
    none. `steps` is what it would have cost to probe the side with all rows. Hops made `made` combinations of those that were left,
    out of `compared`. `sampled` rows were tried on all sides, by `profiled` probes besides; `patterns` as in `FilterObservation`.
    """

    order: tuple[int, ...]
    rows: int
    probed: tuple[int, ...]
    dropped: tuple[int, ...]
    steps: tuple[int, ...]
    compared: int = 0
    made: int = 0
    sampled: int = 0
    profiled: int = 0
    patterns: Mapping[int, int] = field(default_factory=dict)

    def plus(self, other: ProbeObservation) -> ProbeObservation:
        """The sum of two tasks or epochs; the order is the later one's."""
        patterns = dict(self.patterns)
        for bits, rows in other.patterns.items():
            patterns[bits] = patterns.get(bits, 0) + rows
        return ProbeObservation(
            other.order,
            self.rows + other.rows,
            _sums(self.probed, other.probed),
            _sums(self.dropped, other.dropped),
            _sums(self.steps, other.steps),
            self.compared + other.compared,
            self.made + other.made,
            self.sampled + other.sampled,
            self.profiled + other.profiled,
            patterns,
        )

    @property
    def costs(self) -> tuple[float, ...]:
        """The steps of one probe of each side."""
        return tuple(steps / self.rows for steps in self.steps)

    @property
    def spent(self) -> float:
        """The steps of all probes of the order."""
        return sum(probed * cost for probed, cost in zip(self.probed, self.costs, strict=True))

    def drop_rate(self, side: int) -> float:
        """The share of the sampled rows that have no partner in a side."""
        drops = sum(rows for bits, rows in self.patterns.items() if bits >> side & 1)
        return drops / self.sampled if self.sampled else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON-able values."""
        return {**asdict(self), "patterns": {str(bits): rows for bits, rows in self.patterns.items()}}

    @staticmethod
    def of(fields: Mapping[str, Any]) -> ProbeObservation:
        """The inverse of `as_dict`, after a round trip by JSON."""
        patterns = {int(bits): rows for bits, rows in fields["patterns"].items()}
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        return ProbeObservation(**{**plain, "patterns": patterns})


@dataclass(frozen=True, slots=True)
class CacheObservation:
    """The new rows of one side of a join in one epoch, and the cache that they looked up, if they did.

    `measured` of the `rows` were joined without a cache: they `compared` so many rows of other sides, and `made` combinations of all, of
    which a cache would have had `passing`. `missing`: rows whose keys no cache would have had. Of the `lookups`, `hits` found their key,
    of an earlier epoch or added for another row of this one, and all `matched` so many combinations; keys that were absent were `joined`
    with so many comparisons, which `created` combinations.
    `followed` rows had keys of caches of their side, which `changed` combinations there. `resident` bytes of rows and combinations are in
    memory for the next epoch, counted once for a join.
    """

    rows: int = 0
    measured: int = 0
    compared: int = 0
    made: int = 0
    passing: int = 0
    missing: int = 0
    lookups: int = 0
    hits: int = 0
    matched: int = 0
    joined: int = 0
    created: int = 0
    followed: int = 0
    changed: int = 0
    resident: int = 0

    def plus(self, other: CacheObservation) -> CacheObservation:
        """The sum of two batches, tasks or epochs."""
        return CacheObservation(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


NO_DELAY: Final = -(1 << 62)
"""The delay of sides of which no rows were joined: below all others."""


class KeyTimes(NamedTuple):
    """New rows of one side of a join, by their keys: of `rows` the largest time between two of one key was `repeated`, and of `in_order` rows the
    largest time by which one was after a larger key was `inverted`; below 0 without such rows. `latest` is the time of the last.
    """

    rows: int = 0
    repeated: int = NO_DELAY
    in_order: int = 0
    inverted: int = NO_DELAY
    latest: int = NO_DELAY

    def plus(self, other: KeyTimes) -> KeyTimes:
        """The sum of two tasks or levels of an epoch."""
        rows, in_order = self.rows + other.rows, self.in_order + other.in_order
        repeated, inverted = max(self.repeated, other.repeated), max(self.inverted, other.inverted)
        return KeyTimes(rows, repeated, in_order, inverted, max(self.latest, other.latest))


@dataclass(frozen=True, slots=True)
class DelayObservation:
    """The combinations of one join in one epoch: `pairs` of them were measured, the last with an instant of `latest`.

    `delays` has by side and other side, one side after the other, the largest time by which the row of the other was after that of the
    side, in microseconds. By side `rows` are new, `stored` are those before them, and the join advanced by `punctuations` and `bounds`, which
    are as `largest`, None where none was in force. `left_out` combinations, or rows, were beyond a bound, `left_out_sampled` of them of keys whose
    rows are stored for the whole window. `uses`: whether rows are dropped by what is found. `keys`: by side, if they were measured. `from_spill`: how many
    combinations were made with rows that had been spilled.
    """

    pairs: int = 0
    delays: tuple[int, ...] = ()
    latest: int = NO_DELAY
    rows: tuple[int, ...] = ()
    stored: tuple[int, ...] = ()
    punctuations: tuple[int, ...] = ()
    bounds: tuple[int | None, ...] = ()
    left_out: int = 0
    left_out_sampled: int = 0
    uses: bool = False
    keys: tuple[KeyTimes, ...] = ()
    from_spill: int = 0

    @property
    def largest(self) -> tuple[int, ...]:
        """The largest distances: as `delays`, of a side and itself between rows of one key; then by side those behind larger keys."""
        sides = range(len(self.punctuations))
        keys = self.keys or (KeyTimes(),) * len(sides)
        delays = [
            keys[one].repeated if one == other else self.delays[one * len(sides) + other]
            for one in sides
            for other in sides
        ]
        return (*delays, *(times.inverted for times in keys))

    def plus(self, other: DelayObservation) -> DelayObservation:
        """The sum of two tasks or levels of an epoch."""
        return DelayObservation(
            self.pairs + other.pairs,
            tuple(map(max, self.delays, other.delays)),
            max(self.latest, other.latest),
            _sums(self.rows, other.rows),
            _sums(self.stored, other.stored),
            tuple(map(max, self.punctuations, other.punctuations)),
            other.bounds,
            self.left_out + other.left_out,
            self.left_out_sampled + other.left_out_sampled,
            self.uses,
            tuple(map(KeyTimes.plus, self.keys, other.keys)) or self.keys or other.keys,
            self.from_spill + other.from_spill,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON-able values; of joins that may not use bounds without what concerns these."""
        measured = ["pairs", "delays", "latest", "rows", "stored", "punctuations"]
        measured += ["bounds", "left_out", "left_out_sampled", "uses"] if self.uses else []
        measured += [name for name in ("keys", "from_spill") if getattr(self, name)]
        return {name: getattr(self, name) for name in measured}

    @staticmethod
    def of(fields: Mapping[str, Any]) -> DelayObservation:
        """The inverse, after a round trip by JSON."""
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        keys = tuple(KeyTimes(*times) for times in plain.pop("keys", ()))
        return DelayObservation(**plain, keys=keys)


@dataclass(frozen=True, slots=True)
class ProbeCounts:
    """What a join did: combinations of rows looked up in the state of a side, and the rows there compared with them."""

    probes: int = 0
    candidates: int = 0

    def plus(self, probes: int, candidates: int) -> ProbeCounts:
        """The sums of both."""
        return ProbeCounts(self.probes + probes, self.candidates + candidates)


NO_PROBES: Final = ProbeCounts()


class HeavyKey(NamedTuple):
    """A key of a join with much of a task's work in an epoch, by its hash: new rows by side, and how many rows they were compared with."""

    key: int
    rows: tuple[int, ...]
    compared: int


def _sums(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """The sums by place; of an empty tuple and another, that one."""
    if not (first and second):
        return first or second
    return tuple(one + other for one, other in zip(first, second, strict=True))


_NAMED = ("filters", "joins", "caches", "delays", "loads", "choices")
"""Fields of an epoch that are left out where they are empty."""


@dataclass(frozen=True, slots=True)
class EpochObservation:
    """All that one epoch measured.

    `rows`, `bytes`, `late` and `rejected` as in `StreamObservation`, of all streams that are input: not of results that other
    queries read, nor of unions. `seconds` of wall clock per stage: `scan` (reading and
    archiving), `fold`, `state` and `write` of the task that took longest; `execute`, all tasks and what it takes to run them;
    `publish`. `work` is named "read STREAM", "fold OPERATOR" (one of those that share it) and "state STATE".
    `state_bytes` and `state_runs` are of the files on disk.
    """

    epoch: int
    kind: str
    rows: int = 0
    bytes: int = 0
    late: int = 0
    rejected: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    streams: Mapping[str, StreamObservation] = field(default_factory=dict)
    operators: Mapping[str, OperatorObservation] = field(default_factory=dict)
    state_bytes: int = 0
    state_runs: int = 0
    work: Mapping[str, WorkObservation] = field(default_factory=dict)
    filters: Mapping[str, FilterObservation] = field(default_factory=dict)
    """By the name of the conjunction, of those whose order adapts."""
    joins: Mapping[str, ProbeObservation] = field(default_factory=dict)
    """By the name of a join's side, of joins of three or more."""
    caches: Mapping[str, CacheObservation] = field(default_factory=dict)
    """By the name of a join's side, of joins of three or more."""
    delays: Mapping[str, DelayObservation] = field(default_factory=dict)
    """By join of windows."""
    loads: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By join with keys that have much of a task's work: the rows and comparisons of each task."""
    choices: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Nanoseconds to keep profiles, and to optimize again, by the name of the conjunction or of the join's side."""

    def as_dict(self) -> dict[str, object]:
        """Plain JSON-able values, for the line-JSON log: the fields, and the selectivity of each operator."""
        distinct = {id(seen): seen for seen in self.operators.values()}  # thousands without rows share one
        plain = {key: _of_operator(seen) for key, seen in distinct.items()}
        operators = {name: {**plain[id(seen)]} for name, seen in self.operators.items()}
        work = {name: _measures(seen) for name, seen in self.work.items()}
        streams = {name: _measures(seen) for name, seen in self.streams.items()}
        fields = {name: getattr(self, name) for name in self.__slots__ if name not in _NAMED}
        adaptive = {
            "filters": {name: seen.as_dict() for name, seen in self.filters.items()},
            "joins": {name: seen.as_dict() for name, seen in self.joins.items()},
            "caches": {name: asdict(seen) for name, seen in self.caches.items()},
            "delays": {name: seen.as_dict() for name, seen in self.delays.items()},
            "loads": {name: list(tasks) for name, tasks in self.loads.items()},
            "choices": {name: list(spent) for name, spent in self.choices.items()},
        }
        return {
            **fields,
            **{name: seen for name, seen in adaptive.items() if seen},
            "seconds": dict(self.seconds),
            "streams": streams,
            "operators": operators,
            "work": work,
        }


def _measures(seen: WorkObservation | StreamObservation) -> dict[str, Any]:
    """The fields by name."""
    return {measure: getattr(seen, measure) for measure in seen.__slots__}


def _of_operator(seen: OperatorObservation) -> dict[str, Any]:
    """The fields by name, those of joins where there is one, and the selectivity."""
    measures: dict[str, Any] = dict(zip(OperatorObservation._fields, seen, strict=True))
    for of_joins in (("probes", "candidates"), ("joinable", "missing", "variance")):
        if not measures[of_joins[0]]:
            for measure in of_joins:
                del measures[measure]
    measures["selectivity"] = seen.rows_kept / seen.rows_in if seen.rows_in else None
    return measures


@dataclass(frozen=True, slots=True)
class EpochFailure:
    """An attempt at an epoch that failed: the `attempt`-th of at most `attempts`.

    `error` is the error's type, `incarnation` the driver's, `at` an instant. The next attempt starts after `retry_after`
    seconds; None: there is none.
    """

    epoch: int
    attempt: int
    attempts: int
    error: str
    message: str
    incarnation: int
    at: int
    retry_after: float | None

    def as_dict(self) -> dict[str, object]:
        """Plain JSON-able values, of kind "failure" among those of epochs."""
        return {"kind": "failure", **asdict(self)}
