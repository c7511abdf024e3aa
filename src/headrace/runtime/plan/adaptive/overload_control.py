"""The shares of their rows that queries WITH QOS see next, decided at the end of every epoch from what its tasks measured; and
what their answers are worth now, for status, SHOW and EXPLAIN.

Control and shares are facts of the manifest: an epoch that is run again, after a failure or a restart, drops the same rows, and
so does a backfill, since the archive's entry of each epoch has the shares that were in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import inf
from typing import Any, Final, Protocol

from headrace.dataclass import dataclass
from headrace.observation import WorkObservation
from headrace.operators.families.family import state_name
from headrace.overload.controller import Control, Observed, QueryWork, Stated, Worth
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.task_messages import StateReceipt
from headrace.store.logs.manifest import Manifest
from headrace.time import SECOND, Instant

OVERLOAD: Final = "overload"
"""In a manifest's facts, if a query states a quality of service: `control`, `shares` and `worth` by operator, `load`, …"""

MEMORY: Final = "memory"
"""In a manifest's facts, where a memory budget is in force: `control`, `shares`, `doubled`, `epoch_rows`, … (`memory_budget`)."""


class _Waiting(Protocol):
    """A record that waits for an epoch."""

    @property
    def ordinal(self) -> int:
        """Its place among all records."""

    @property
    def weight(self) -> int:
        """An estimate of its rows."""

    @property
    def record(self) -> Mapping[str, Any]:
        """With its time of `arrival`."""


@dataclass(frozen=True, slots=True)
class OverloadReport:
    """The state of a hub with queries WITH QOS.

    `worth` is by operator. `load` is the part of every second that the rows take at the present rates, `demand` what they
    would take if none was dropped; `saturation` in rows per second; `changes` how often shares have changed. `sketched` are the
    operators whose rows are sketched now; `turns` are the rows of each stream in the next epoch, where it has no time for all.
    """

    worth: Mapping[str, Worth]
    load: float
    demand: float
    saturation: float
    changes: int
    sketched: frozenset[str] = frozenset()
    turns: Mapping[str, int] = field(default_factory=dict)

    @property
    def utility(self) -> float:
        """The sum over all queries, at most 1 for each."""
        return sum(worth.utility for worth in self.worth.values())


def chosen_shares(manifest: Manifest) -> dict[str, tuple[float, ...]]:
    """Operator → the shares of its rows in the next epoch, of those that do not see all, or that sketch theirs: the lesser of
    time and memory.
    """
    shares: dict[str, tuple[float, ...]] = {}
    for fact in (OVERLOAD, MEMORY):
        for operator, seen in manifest.facts.get(fact, {}).get("shares", {}).items():
            shares[operator] = tuple(map(min, seen, shares.get(operator, seen)))
    return shares


def doubled_errors(manifest: Manifest) -> dict[str, int]:
    """Operator → how often the error of its synopses is doubled in the next epoch, since memory is short."""
    return dict(manifest.facts.get(MEMORY, {}).get("doubled", {}))


def epoch_rows(manifest: Manifest) -> int | None:
    """The rows that the next epoch may take so that no answer is late by it alone, and that memory has room for; None without such a limit."""
    return _least(manifest.facts.get(fact, {}).get("epoch_rows") for fact in (OVERLOAD, MEMORY))


def rows_by_turns(
    manifest: Manifest, waiting: Callable[[str], Iterable[_Waiting]]
) -> Callable[[str], int | None]:
    """Stream → the rows that the next epoch may take of it, as `epoch_rows`; 0 where those of others have their turn.

    Turns were given by what waited then: where none of it does any more, there are none.
    """
    of_all, turns = epoch_rows(manifest), overload_turns(manifest)
    if not any(rows and any(True for _ in waiting(stream)) for stream, rows in turns.items()):
        return lambda _: of_all
    in_memory = manifest.facts.get(MEMORY, {}).get("epoch_rows")
    return lambda stream: _least((turns[stream], in_memory)) if stream in turns else of_all


def overload_turns(manifest: Manifest) -> Mapping[str, int]:
    """Stream → the rows that the next epoch takes of it, where it has no time for all that wait."""
    turns: Mapping[str, int] = manifest.facts.get(OVERLOAD, {}).get("turns", {})
    return turns


def _least(limits: Iterable[int | None]) -> int | None:
    return min((rows for rows in limits if rows is not None), default=None)


def overload_report(manifest: Manifest) -> OverloadReport | None:
    """The report after the last epoch; None where no query states a quality of service."""
    facts: Mapping[str, Any] | None = manifest.facts.get(OVERLOAD)
    if facts is None:
        return None
    worth = {operator: Worth(*values) for operator, values in facts["worth"].items()}
    control = facts["control"]
    return OverloadReport(
        worth,
        facts["load"],
        facts["demand"],
        facts["saturation"],
        control["changes"],
        frozenset(facts.get("sketched", ())),
        overload_turns(manifest),
    )


@dataclass(frozen=True, slots=True)
class FinishedEpoch:
    """An epoch that ran: its work, what it measured, how many seconds it took, and when it ended."""

    work: EpochWork
    receipts: Sequence[StateReceipt]
    seconds: float
    now: Instant

    def observed(
        self, plan: EpochPlan, streams: Iterable[str], waiting: Callable[[str], Iterable[_Waiting]]
    ) -> Observed:
        """The epoch as the control of overload sees it; `streams` are those of queries WITH QOS, `waiting` the records of one that
        no epoch has published.
        """
        weights: dict[str, float] = {}
        delays: dict[str, float] = {}
        for split, weight in self.work.splits:
            weights[split.stream] = weights.get(split.stream, 0) + weight
            arrival = (split.record or {}).get("arrival", self.now)
            delays[split.stream] = max(delays.get(split.stream, 0.0), (self.now - arrival) / SECOND)
        left = {
            stream: float(sum(record.weight for record in self._left(stream, waiting))) for stream in streams
        }
        closes = any(receipt.results for receipt in self.receipts)
        return Observed(self.now / SECOND, self.seconds, weights, left, delays, self._queries(plan), closes)

    def oldest(
        self, streams: Iterable[str], waiting: Callable[[str], Iterable[_Waiting]]
    ) -> dict[str, float]:
        """For how many seconds the first rows of each stream that no epoch has published have waited."""
        return {
            stream: max(
                (
                    (self.now - left.record.get("arrival", self.now)) / SECOND
                    for left in self._left(stream, waiting)
                ),
                default=0.0,
            )
            for stream in streams
        }

    def _left(self, stream: str, waiting: Callable[[str], Iterable[_Waiting]]) -> Iterator[_Waiting]:
        """The records that wait after this epoch."""
        last = max(self.work.taken.get(stream, ()), default=-1)
        return (record for record in waiting(stream) if record.ordinal > last)

    def _queries(self, plan: EpochPlan) -> dict[str, QueryWork]:
        """The work of each query WITH QOS that shares its scan with no other: its part of the seconds is that of all measured work."""
        scans = [scan for receipt in self.receipts if receipt.task == 0 for scan in receipt.scans]
        done: dict[str, WorkObservation] = {}
        for seen in [*(scan.work for scan in scans), *(receipt.work for receipt in self.receipts)]:
            for name, work in seen.items():
                done[name] = done[name].plus(work) if name in done else work
        nanoseconds = sum(work.nanoseconds for work in done.values()) or 1
        queries = {}
        for name, quality in plan.qualities.items():
            if not quality.is_flexible and f"fold {name}" not in done:
                continue
            fold = done.get(f"fold {name}", WorkObservation())
            state = done.get(f"state {state_name(plan.operators[name])}", WorkObservation())
            part = (fold.nanoseconds + state.nanoseconds) / nanoseconds
            counts = [scan.arrived[name] for scan in scans if name in scan.arrived]
            arrived = tuple(map(sum, zip(*counts, strict=True)))
            closes = any(
                receipt.operators[name].results for receipt in self.receipts if name in receipt.operators
            )
            queries[name] = QueryWork(fold.rows_in, self.seconds * part, arrived, closes)
        return queries


def decided(
    manifest: Manifest,
    plan: EpochPlan,
    epoch: FinishedEpoch,
    waiting: Callable[[str], Iterable[_Waiting]],
    sources_of: Callable[[str], tuple[str, ...]],
) -> Manifest:
    """The manifest with the shares for the next epoch; as it is where no query states a quality of service.

    `sources_of` gives the streams from which rows of a stream come. Only epochs of all live queries decide.
    """
    if not plan.qualities:
        return _without(manifest)
    if epoch.work.kind not in ("epoch", "tick") or not epoch.work.operators.followers:
        return manifest
    stated = {
        name: Stated(quality, sources_of(plan.operators[name].stream))
        for name, quality in plan.qualities.items()
        if name in epoch.work.operators
    }
    facts = manifest.facts.get(OVERLOAD)
    before = Control() if facts is None else Control.from_json(facts["control"])
    streams = sorted({stream for query in stated.values() for stream in query.streams})
    control = before.after(epoch.observed(plan, streams, waiting), stated)
    done = replace(control, steps=before.steps)  # the epoch's answers have the shares that were in force
    saturation, most = control.saturation(stated), control.epoch_rows(stated)
    fact = {
        "control": control.as_json(),
        "shares": {name: list(seen) for name, seen in control.shares(stated).items() if min(seen) < 1},
        "sketched": sorted(name for name, query in stated.items() if _is_sketched(control, name, query)),
        "worth": {
            name: worth.as_json() for name, worth in done.worth(stated, doubled_errors(manifest)).items()
        },
        "load": control.load(stated),
        "demand": control.load(stated, whole=True),
        "saturation": saturation if saturation < inf else 0.0,
        "epoch_rows": max(1, int(most)) if most < inf else None,
        "turns": control.turns(epoch.oldest(streams, waiting), stated),
    }
    return replace(manifest, facts={**manifest.facts, OVERLOAD: fact})


def _is_sketched(control: Control, operator: str, query: Stated) -> bool:
    return query.quality.sketches is not None and control.shares({operator: query})[operator][0] == 0


def _without(manifest: Manifest) -> Manifest:
    """The manifest without facts about queries that are no more."""
    if OVERLOAD not in manifest.facts:
        return manifest
    return replace(manifest, facts={name: fact for name, fact in manifest.facts.items() if name != OVERLOAD})
