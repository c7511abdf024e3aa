"""The control of overload, a pure function from epoch to epoch: what is known of rates, costs and delays, and the shares of
rows that queries see next, or count exactly.

Rows are dropped only after answers have been too late for a while, with more to do than time; they return, the last loss
first, after a calm in which there is time for them. Between two changes there is at least such a while, so changes a minute are
bounded. Every figure is an argument: the same epochs give the same shares, on a simulated clock too. Source: Aurora (Carney et
al. 2002): delay monitor, hysteresis, undoing by a stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, inf
from typing import Any, Final

from headrace.algebra.quality_of_service import QualityOfService
from headrace.overload.capacity import Box, CostLine, mixed, needed, saturation
from headrace.overload.road_map import Sheddable, Step, shed, undo

HEADROOM: Final = 0.8
"""The part of the time that may be used in the long run; the rest is for rows that arrive at once, and for questions."""
PATIENCE_SECONDS: Final = 5.0
"""How long answers have to be too late, with too much to do, before rows are dropped: a spike of two seconds ends before that."""
CALM_SECONDS: Final = 10.0
"""How long there has to be time for more before rows return."""
DRAIN_SECONDS: Final = 30.0
"""In which rows that wait are to be processed, when rows are dropped."""
GOOD_DELAY_SECONDS: Final = 5.0
"""The delay that is good for a query without a graph of delay."""
_RATE_SECONDS: Final = 0.5
"""Over which a rate of arrival is averaged."""
_NO_RATE: Final = 1e-6
"""Rows per second: a stream that had fewer, and that no query reads any more, is left out."""
UNTRIED: Final = 0.5
"""The part of its cost that a query is expected to take when it is answered from sketches, until that was measured."""
ENOUGH: Final = 3.0
"""Epochs whose measurements decide that sketches cost more than exact answers."""
_RETURN: Final = 0.9
"""The part of the headroom that may be used after rows have returned: a little less than what sheds them."""


@dataclass(frozen=True, slots=True)
class Stated:
    """A query with a quality of service, and the streams whose delay is its own."""

    quality: QualityOfService
    streams: tuple[str, ...]

    @property
    def good_delay(self) -> float:
        """Seconds up to which a delay costs nothing."""
        return GOOD_DELAY_SECONDS if self.quality.delay is None else self.quality.delay.good_until


@dataclass(frozen=True, slots=True)
class Worth:
    """What a query's answers are worth: the utility, the seconds that the last ones were late, and the share of rows lost."""

    utility: float
    delay: float
    lost: float

    def as_json(self) -> list[float]:
        """JSON values; the constructor takes them back."""
        return [self.utility, self.delay, self.lost]


@dataclass(frozen=True, slots=True)
class QueryWork:
    """One query in one epoch: the rows it was given, the seconds they took, and the rows that arrived, by interval of importance."""

    rows: float
    seconds: float
    arrived: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Observed:
    """One epoch: when it ended and how long it worked, in seconds; rows taken, rows that wait, and delays, by stream."""

    at: float
    busy: float
    taken: Mapping[str, float] = field(default_factory=dict)
    waiting: Mapping[str, float] = field(default_factory=dict)
    delays: Mapping[str, float] = field(default_factory=dict)
    queries: Mapping[str, QueryWork] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Control:
    """What is known after an epoch, and the `steps` by which rows are dropped in the next one; JSON in the manifest.

    `others` is the cost of a row without the queries that may lose it; `sketching` that of a query's rows when they are sketched. `bad_since` and `good_since` are when it began that
    rows should be dropped, or may return, since shares last changed; `changes` is how often they did.
    """

    at: float = 0.0
    rates: Mapping[str, float] = field(default_factory=dict)
    waiting: Mapping[str, float] = field(default_factory=dict)
    delays: Mapping[str, float] = field(default_factory=dict)
    others: CostLine = field(default_factory=CostLine)
    costs: Mapping[str, CostLine] = field(default_factory=dict)
    frequencies: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    bad_since: float | None = None
    good_since: float | None = None
    changes: int = 0
    sketching: Mapping[str, CostLine] = field(default_factory=dict)

    # -- what is in force ----------------------------------------------------------------------------------------------

    def shares(self, queries: Mapping[str, Stated]) -> dict[str, tuple[float, ...]]:
        """By query, the share of each interval of its rows that it sees."""
        changed = {(step.query, step.interval): step.after for step in self.steps}
        return {
            name: tuple(changed.get((name, interval), 1.0) for interval in range(stated.quality.intervals))
            for name, stated in queries.items()
        }

    def frequencies_of(self, quality: QualityOfService, query: str) -> tuple[float, ...]:
        """How a query's rows divide into intervals; equally while nothing is known."""
        known, intervals = self.frequencies.get(query, ()), quality.intervals
        return known if len(known) == intervals else (1 / intervals,) * intervals

    def delay(self, stated: Stated) -> float:
        """The delay of a query's last answers in seconds."""
        return max((self.delays.get(stream, 0.0) for stream in stated.streams), default=0.0)

    def worth(self, queries: Mapping[str, Stated]) -> dict[str, Worth]:
        """What the answers of each query are worth now."""
        worth, shares = {}, self.shares(queries)
        for name, stated in queries.items():
            delay = self.delay(stated)
            lost = stated.quality.lost(shares[name], self.frequencies_of(stated.quality, name))
            is_whole = stated.quality.loss is None
            worth[name] = Worth(stated.quality.utility(delay, lost), delay, 0.0 if is_whole else lost)
        return worth

    def boxes(self, queries: Mapping[str, Stated], *, whole: bool = False) -> Iterator[Box]:
        """The work on rows: of all that is not dropped, and of each query that may lose rows; `whole` as if none did."""
        streams = tuple(self.rates)
        yield Box("others", self.others.per_row, streams)
        for name, query in self.sheddable(queries).items():
            share = 1.0 if whole or not query.seconds else 1 - query.saved / query.seconds
            yield Box(name, self.costs[name].per_row, queries[name].streams, share=share)

    def load(self, queries: Mapping[str, Stated], *, whole: bool = False) -> float:
        """Seconds of processing in a second at the present rates; `whole` as if no row was dropped."""
        return needed(list(self.boxes(queries, whole=whole)), self.rates)

    def saturation(self, queries: Mapping[str, Stated]) -> float:
        """Rows per second of all streams, in their present mix, at which no time is left without dropping rows."""
        rates = mixed(self.rates, self.rates)
        return sum(rates.values()) * saturation(list(self.boxes(queries, whole=True)), rates)

    def epoch_rows(self, queries: Mapping[str, Stated]) -> float:
        """The rows that an epoch may take so that they alone make no answer too late: it takes half of the least good delay.

        Longer epochs would be noticed late, and all of their answers would be late. Of shorter ones than four times what an epoch
        takes without rows, the hub could do fewer in all.
        """
        rates = mixed(self.rates, self.rates)
        seconds = needed(list(self.boxes(queries)), rates)
        good = min((stated.good_delay for stated in queries.values()), default=inf)
        return sum(rates.values()) * max(good / 2, 4 * self.others.fixed) / seconds if seconds > 0 else inf

    def sheddable(self, queries: Mapping[str, Stated]) -> dict[str, Sheddable]:
        """The queries that may lose rows and whose cost is known, with their present shares."""
        shares = self.shares(queries)
        return {
            name: Sheddable(
                stated.quality,
                self.costs[name].per_row * sum(self.rates.get(stream, 0.0) for stream in stated.streams),
                self.frequencies_of(stated.quality, name),
                shares[name],
                0.0 if stated.quality.sketches is None else self.remaining(name),
            )
            for name, stated in queries.items()
            if stated.quality.is_flexible and name in self.costs
        }

    def remaining(self, query: str) -> float:
        """The part of the cost of a query's rows that remains when they are sketched."""
        exactly = self.costs[query].per_row
        if query not in self.sketching or not exactly:
            return UNTRIED
        return self.sketching[query].per_row / exactly

    # -- the next epoch ------------------------------------------------------------------------------------------------

    def after(self, seen: Observed, queries: Mapping[str, Stated]) -> Control:
        """The control after an epoch, with the shares for the next one."""
        return self.measured(seen, queries).decided(queries)

    def decided(self, queries: Mapping[str, Stated]) -> Control:
        """With rows dropped or taken back, if it has been time for that for a while."""
        load = self.load(queries)
        need = load + self._backlog(queries) / DRAIN_SECONDS - HEADROOM
        is_late = any(self.delay(stated) > stated.good_delay for stated in queries.values())
        is_good = bool(self.steps) and not is_late and load < HEADROOM * _RETURN
        bad_since = _since(self.bad_since, self.at, holds=is_late and need > 0)
        good_since = _since(self.good_since, self.at, holds=is_good)
        steps = tuple(step for step in self.steps if not self._is_dearer(step))
        if steps == self.steps and self._lasted(bad_since, PATIENCE_SECONDS):
            steps += self.dropping(queries, need)
        elif steps == self.steps and self._lasted(good_since, CALM_SECONDS):
            steps = tuple(undo(steps, self.sheddable(queries), HEADROOM * _RETURN - load)[0])
        if steps == self.steps:
            return replace(self, bad_since=bad_since, good_since=good_since)
        return replace(self, steps=steps, changes=self.changes + 1, bad_since=None, good_since=None)

    def _is_dearer(self, step: Step) -> bool:
        """Whether a query's rows turned out to cost more sketched than counted exactly, over several epochs."""
        line = self.sketching.get(step.query)
        return (
            step.after == 0 and line is not None and line.weight >= ENOUGH and self.remaining(step.query) > 1
        )

    def dropping(self, queries: Mapping[str, Stated], need: float) -> tuple[Step, ...]:
        """Further steps that save so many seconds in a second."""
        return tuple(shed(self.sheddable(queries), need))

    def measured(self, seen: Observed, queries: Mapping[str, Stated]) -> Control:
        """With what an epoch has shown of rates, delays and costs."""
        elapsed = max(seen.at - self.at, 1e-6)
        is_first = not self.at
        faded = exp(-elapsed / _RATE_SECONDS)
        rates = {}
        for stream in sorted({*self.rates, *seen.taken, *seen.waiting}):
            arrived = seen.taken.get(stream, 0) + seen.waiting.get(stream, 0) - self.waiting.get(stream, 0)
            rate = max(0.0, arrived) / elapsed
            rate = 0.0 if is_first else self.rates.get(stream, 0.0) * faded + rate * (1 - faded)
            if rate > _NO_RATE or stream in seen.waiting:
                rates[stream] = rate
        costs = {name: line for name, line in self.costs.items() if name in queries}
        sketching = {name: line for name, line in self.sketching.items() if name in queries}
        is_sketched = {step.query for step in self.steps if step.after == 0}
        frequencies = {name: known for name, known in self.frequencies.items() if name in queries}
        of_queries = 0.0
        for name, work in seen.queries.items():
            of_queries += work.seconds
            if work.rows and name in queries:
                lines = sketching if name in is_sketched else costs
                lines[name] = lines.get(name, CostLine()).after(work.rows, work.seconds, elapsed)
            if sum(work.arrived) and name in queries:
                frequencies[name] = _divided(frequencies.get(name, ()), work.arrived)
        rows_taken = sum(seen.taken.values())
        others = (
            self.others.after(rows_taken, max(0.0, seen.busy - of_queries), elapsed)
            if rows_taken
            else self.others
        )
        return replace(
            self,
            at=seen.at,
            rates=rates,
            waiting=dict(seen.waiting),
            delays={**dict.fromkeys(self.delays, 0.0), **seen.delays},
            others=others,
            costs=costs,
            frequencies=frequencies,
            steps=tuple(step for step in self.steps if step.query in queries),
            sketching=sketching,
        )

    def _backlog(self, queries: Mapping[str, Stated]) -> float:
        """Seconds that the waiting rows take at the present shares."""
        return needed(list(self.boxes(queries)), self.waiting)

    def _lasted(self, since: float | None, seconds: float) -> bool:
        """Whether something holds for so long; a change of shares starts that time again."""
        return since is not None and self.at - since >= seconds

    # -- as JSON -------------------------------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """JSON values, for the manifest."""
        value = {name: getattr(self, name) for name in Control.__slots__}
        value["others"] = self.others.as_json()
        value["costs"] = {name: line.as_json() for name, line in self.costs.items()}
        value["sketching"] = {name: line.as_json() for name, line in self.sketching.items()}
        value["frequencies"] = {name: list(known) for name, known in self.frequencies.items()}
        value["steps"] = [step.as_json() for step in self.steps]
        return value

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Control:
        """The inverse."""
        return Control(
            **{
                **value,
                "others": CostLine(*value["others"]),
                "costs": {name: CostLine(*line) for name, line in value["costs"].items()},
                "sketching": {name: CostLine(*line) for name, line in value.get("sketching", {}).items()},
                "frequencies": {name: tuple(known) for name, known in value["frequencies"].items()},
                "steps": tuple(Step(*step) for step in value["steps"]),
            }
        )


def _since(before: float | None, at: float, *, holds: bool) -> float | None:
    """When something began to hold, if it still does."""
    if not holds:
        return None
    return at if before is None else before


def _divided(before: Sequence[float], arrived: Sequence[int]) -> tuple[float, ...]:
    """The shares of intervals, half by the rows that have arrived now."""
    now = [rows / sum(arrived) for rows in arrived]
    if len(before) != len(now):
        return tuple(now)
    return tuple((one + other) / 2 for one, other in zip(before, now, strict=True))
