"""The control of overload, a pure function from epoch to epoch: what is known of rates, costs and delays, and the shares of
rows that queries see next, or count exactly.

Rows are dropped only after answers have been too late for a while, with more to do than time; they return, the last loss
first, after a calm in which there is time for them. Between two changes there is at least such a while, so changes a minute are
bounded. Every figure is an argument: the same epochs give the same shares, on a simulated clock too. Source: Aurora (Carney et
al. 2002): delay monitor, hysteresis, undoing by a stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import exp, inf
from typing import Any, Final

from headrace.algebra.quality_of_service import QualityOfService
from headrace.dataclass import dataclass
from headrace.overload.capacity import Box, CostLine, mixed, needed, saturation
from headrace.overload.road_map import Sheddable, Step, shed, undo
from headrace.overload.turns import Queue, raised, turns

HEADROOM: Final = 0.8
"""The part of the time that may be used in the long run; the rest is for rows that arrive at once, and for questions."""
PATIENCE_SECONDS: Final = 5.0
"""How long answers have to be too late, with too much to do, before rows are dropped: a spike of two seconds ends before that."""
CALM_SECONDS: Final = 10.0
"""How long there has to be time for more before rows return."""
DRAIN_SECONDS: Final = 30.0
"""In which rows that wait are to be processed at the latest, when rows are dropped."""
DRAINS: Final = (5.0, 10.0, 20.0, DRAIN_SECONDS)
"""Times to choose from: a short one costs more rows, a long one makes answers late for longer."""
OUTLOOK_SECONDS: Final = 60.0
"""Over which the utility of these is compared."""
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
_PARTS: Final = (1 / 8, 3 / 8, 5 / 8, 7 / 8)
"""Of the delay that remains on average in each quarter of the time in which rows that wait are processed."""
_LARGE_SECONDS: Final = 0.25
"""Of rows in an epoch that shows how slow the machine is: shorter ones are mostly what an epoch takes by itself."""
_SLOWDOWN_SECONDS: Final = 3.0
_MOST_SLOWDOWN: Final = 4.0
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
    """One query in one epoch: the rows it was given, the seconds they took, and the rows that arrived, by interval of importance;
    `closes` if it had results.
    """

    rows: float
    seconds: float
    arrived: tuple[int, ...] = ()
    closes: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """One epoch: when it ended and how long it worked, in seconds; rows taken, rows that wait, and delays, by stream; `closes` if
    any query had results.
    """

    at: float
    busy: float
    taken: Mapping[str, float] = field(default_factory=dict)
    waiting: Mapping[str, float] = field(default_factory=dict)
    delays: Mapping[str, float] = field(default_factory=dict)
    queries: Mapping[str, QueryWork] = field(default_factory=dict)
    closes: bool = False


@dataclass(frozen=True, slots=True)
class Control:
    """What is known after an epoch, and the `steps` by which rows are dropped in the next one; JSON in the manifest.

    `others` is the cost of a row without the queries that may lose it; `sketching` that of a query's rows when they are sketched. `bad_since` and `good_since` are when it began that
    rows should be dropped, or may return, since shares last changed; `changes` is how often they did. `raised` are factors of priorities, by stream; `pace` is
    the rows per second of the last epoch with these steps; `slowdown` is how many times as long as the costs of its rows recent epochs
    took: a busy machine, or small samples that cost more a row, show there before they do in costs.
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
    raised: Mapping[str, float] = field(default_factory=dict)
    pace: float = 0.0
    slowdown: float = 1.0

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

    def worth(
        self, queries: Mapping[str, Stated], doubled: Mapping[str, int] | None = None
    ) -> dict[str, Worth]:
        """What the answers of each query are worth now; `doubled` is how often the error of synopses is, of those where it is."""
        worth, shares = {}, self.shares(queries)
        for name, stated in queries.items():
            delay = self.delay(stated)
            lost = stated.quality.lost(shares[name], self.frequencies_of(stated.quality, name))
            times = 0 if doubled is None else doubled.get(name, 0)
            utility = stated.quality.utility(delay, lost, times)
            worth[name] = Worth(utility, delay, stated.quality.rows_lost(lost))
        return worth

    def utility(self, queries: Mapping[str, Stated], delay: float) -> float:
        """What answers of all queries would be worth with this delay in seconds."""
        shares = self.shares(queries)
        return sum(
            stated.quality.utility(
                delay, stated.quality.lost(shares[name], self.frequencies_of(stated.quality, name))
            )
            for name, stated in queries.items()
        )

    def boxes(self, queries: Mapping[str, Stated], *, whole: bool = False) -> Iterator[Box]:
        """The work on rows: of all that is not measured by query, and of each query whose cost is known; `whole` as if none lost rows."""
        streams = tuple(self.rates)
        yield Box("others", self.slowdown * self.others.per_row, streams)
        sheddable = self.sheddable(queries)
        for name in [name for name in queries if name in self.costs]:
            query = sheddable.get(name)
            share = 1.0 if whole or query is None or not query.seconds else 1 - query.saved / query.seconds
            yield Box(name, self.slowdown * self.costs[name].per_row, queries[name].streams, share=share)

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
        takes without rows, the hub could do fewer in all. More rows than have just been done in that time fit in any case: small epochs
        make rows look dear, and would stay small.
        """
        rates = mixed(self.rates, self.rates)
        seconds = needed(list(self.boxes(queries)), rates)
        most = self.epoch_seconds(queries)
        return max(sum(rates.values()) / seconds, self.pace) * most if seconds > 0 else inf

    def epoch_seconds(self, queries: Mapping[str, Stated]) -> float:
        """Seconds that the rows of an epoch may take."""
        good = min((stated.good_delay for stated in queries.values()), default=inf)
        return max(good / 2, 4 * self.others.fixed)

    def turns(self, oldest: Mapping[str, float], queries: Mapping[str, Stated]) -> dict[str, int]:
        """The rows that the next epoch takes of each stream, where it has no time for all; `oldest`: how long the first ones have waited."""
        seconds = self.epoch_seconds(queries)
        return turns(dict(self._queues(oldest, queries)), seconds) if seconds < inf else {}

    def _queues(
        self, oldest: Mapping[str, float], queries: Mapping[str, Stated]
    ) -> Iterator[tuple[str, Queue]]:
        shares, boxes = self.shares(queries), list(self.boxes(queries))
        for stream, rows in self.waiting.items():
            answered = [
                (
                    stated.quality,
                    stated.quality.lost(shares[name], self.frequencies_of(stated.quality, name)),
                )
                for name, stated in queries.items()
                if stream in stated.streams
            ]
            per_row, raised_by = needed(boxes, {stream: 1.0}), self.raised.get(stream, 1.0)
            yield stream, Queue(rows, oldest.get(stream, 0.0), per_row, answered, raised_by)

    def sheddable(self, queries: Mapping[str, Stated]) -> dict[str, Sheddable]:
        """The queries that may lose rows and whose cost is known, with their present shares."""
        shares = self.shares(queries)
        return {
            name: Sheddable(
                stated.quality,
                self.slowdown
                * self.costs[name].per_row
                * sum(self.rates.get(stream, 0.0) for stream in stated.streams),
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
        """With rows dropped or taken back, if it has been time for that for a while.

        Rows that wait for longer than is good are as late as answers that were.
        """
        load, waits = self.load(queries), self.backlog(queries)
        need = _need(load, waits, DRAIN_SECONDS)
        is_late = any(max(waits, self.delay(stated)) > stated.good_delay for stated in queries.values())
        is_good = bool(self.steps) and not is_late and load < HEADROOM * _RETURN
        bad_since = _since(self.bad_since, self.at, holds=is_late and need > 0)
        good_since = _since(self.good_since, self.at, holds=is_good)
        steps = tuple(step for step in self.steps if not self._is_dearer(step.query))
        if steps == self.steps and self._lasted(bad_since, PATIENCE_SECONDS):
            steps += self._best_dropping(queries, load, waits)
        elif steps == self.steps and self._lasted(good_since, CALM_SECONDS):
            steps = tuple(undo(steps, self.sheddable(queries), HEADROOM * _RETURN - load)[0])
        if steps == self.steps:
            return replace(self, bad_since=bad_since, good_since=good_since)
        return replace(self, steps=steps, changes=self.changes + 1, bad_since=None, good_since=None, pace=0.0)

    def _is_dearer(self, query: str) -> bool:
        """Whether a query's rows, or the sample of them that is seen, turned out to cost more sketched than counted exactly, over
        several epochs.
        """
        line = self.sketching.get(query)
        if line is None or line.weight < ENOUGH:
            return False
        steps = [step for step in self.steps if step.query == query]
        seen = min((step.after for step in steps if step.after > 0), default=1.0)
        return any(step.after == 0 for step in steps) and self.remaining(query) * seen > 1

    def _best_dropping(self, queries: Mapping[str, Stated], load: float, waits: float) -> tuple[Step, ...]:
        """Further steps that leave time for the rows that arrive and, soon enough, for those that wait."""
        then = self._with(self.dropping(queries, load - HEADROOM)).utility(queries, 0.0)

        def outlook(steps: tuple[Step, ...]) -> float:
            """The utility until the rows that wait are done, during the calm after that, and when rows have returned."""
            control = self._with(steps)
            waiting, spare = control.backlog(queries), 1 - control.load(queries)
            drained = min(waiting / spare, OUTLOOK_SECONDS) if spare > 0 else OUTLOOK_SECONDS
            calm = min(CALM_SECONDS, OUTLOOK_SECONDS - drained)
            delay = max([waiting, *self.delays.values()])
            late = sum(control.utility(queries, delay * part) for part in _PARTS) / len(_PARTS)
            in_time = control.utility(queries, 0.0)
            return drained * late + calm * in_time + (OUTLOOK_SECONDS - drained - calm) * then

        needs = {_need(load, waits, drain) for drain in DRAINS}
        return max((self.dropping(queries, need) for need in sorted(needs)), key=outlook)

    def _with(self, steps: tuple[Step, ...]) -> Control:
        return replace(self, steps=self.steps + steps)

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
                line = lines.get(name, CostLine())
                lines[name] = line.after(work.rows, work.seconds, elapsed, closes=work.closes)
            if sum(work.arrived) and name in queries:
                frequencies[name] = _divided(frequencies.get(name, ()), work.arrived)
        rows_taken = sum(seen.taken.values())
        others = (
            self.others.after(rows_taken, max(0.0, seen.busy - of_queries), elapsed, closes=seen.closes)
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
            raised=raised(self.raised, self._late(seen.delays, queries)),
            pace=rows_taken / seen.busy if rows_taken and seen.busy > 0 else self.pace,
            slowdown=self._slowdown(seen, queries, elapsed),
        )

    def _slowdown(self, seen: Observed, queries: Mapping[str, Stated], elapsed: float) -> float:
        """With an epoch of many rows: how long it took, by what its rows cost at the shares that were in force."""
        rows = needed(list(self.boxes(queries)), seen.taken) / self.slowdown
        if self.others.weight < ENOUGH or rows < max(_LARGE_SECONDS, 4 * self.others.fixed):
            return self.slowdown
        ratio = min(_MOST_SLOWDOWN, max(1 / _MOST_SLOWDOWN, seen.busy / (rows + self.others.fixed)))
        faded = exp(-elapsed / _SLOWDOWN_SECONDS)
        return self.slowdown * faded + ratio * (1 - faded)

    def _late(self, delays: Mapping[str, float], queries: Mapping[str, Stated]) -> dict[str, bool]:
        """By stream, whether an answer of one of its queries was worth less because its rows were late."""
        late: dict[str, bool] = {}
        for stated in queries.values():
            for stream in stated.streams:
                is_late = delays.get(stream, 0.0) > stated.good_delay
                late[stream] = late.get(stream, False) or is_late
        return late

    def backlog(self, queries: Mapping[str, Stated]) -> float:
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


def _need(load: float, waits: float, drain: float) -> float:
    """Seconds to be saved in a second: in the long run a part of the time is free, and rows that wait are done within `drain`.

    These take `waits` seconds at the present shares, and cost less with the smaller ones too; they may use all the time there is.
    Not positive where that is so already.
    """
    if load <= 0:
        return 0.0
    return load - min(HEADROOM, load * drain / (load * drain + waits))


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
