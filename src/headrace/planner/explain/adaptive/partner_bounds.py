"""EXPLAIN ADAPTIVE of the constraints of one join as text: the bounds on delays and on orders of keys that it has found and uses, with the rows
that they save and the reason of each change; or, where it may not use them, the constraints to declare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from headrace.adaptive.constraints.partner_delays import PartnerBound
from headrace.dataclass import dataclass
from headrace.observation import NO_DELAY, DelayObservation
from headrace.planner.explain.plan_graph import rows_of
from headrace.time import Duration, render_duration

History = Sequence[tuple[int, DelayObservation]]
"""What was observed of a join by epoch, oldest first."""
Clause = Callable[[PartnerBound], str]
"""The constraint to declare for a bound; empty where there is none."""
_SHOWN = 8
"""Periods that are listed: the newest."""
_LEAST_ROWS, _LEAST_SHARE = 1000, 0.25
"""A constraint is proposed if it would drop so many of the stored rows, and this share of them."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A join with the names of its sides, its history, the longest time for which it stores a row, and the bytes of a stored row."""

    sides: Sequence[str]
    history: History
    longest: Duration | None
    row_bytes: float

    @property
    def stored(self) -> tuple[int, ...]:
        """The stored rows by side, in the newest epoch."""
        return self.history[-1][1].stored

    def rate(self, side: int) -> float:
        """New rows of a side in a microsecond of event time."""
        times = [seen.punctuations[side] for _, seen in self.history]
        rows = sum(seen.rows[side] for _, seen in self.history[1:])
        return rows / max(times[-1] - times[0], 1)

    def with_bounds(self, bounds: Sequence[PartnerBound]) -> list[int]:
        """By side, about how many rows would be stored with these bounds."""
        waits = dict[int, list[Duration]]()
        for bound in bounds:
            if bound.within is not None and bound.kind == "partner":
                waits.setdefault(bound.parent, []).append(bound.within)
        others = len(self.sides) - 1
        return [
            min(rows, round(self.rate(side) * max(waits[side])))
            if len(waits.get(side, ())) == others
            else rows
            for side, rows in enumerate(self.stored)
        ]

    @property
    def in_windows(self) -> str:
        """How many rows the whole windows would have."""
        if self.longest is None:
            return "without end they would only grow"
        rows = sum(round(self.rate(side) * self.longest) for side in range(len(self.sides)))
        return f"whole windows would have about {rows_of(max(rows, sum(self.stored)))}"


def bound_lines(
    join: str,
    measured: Measured,
    bounds: Sequence[PartnerBound],
    left_out: tuple[int, int],
) -> Iterator[str]:
    """The bounds that a join has found and uses; of the combinations that were left out how many were noticed, and an estimate of all."""
    yield f"join {join} drops rows by constraints that it finds (k-constraints in event time):"
    sides = measured.sides
    used = [bound for bound in bounds if bound.within is not None]
    yield from (f"  {_in_use(sides, bound)}" for bound in used)
    if not used:
        yield "  none is in force: too few pairs were joined, or their delays are as long as the windows"
    if measured.history:
        yield f"  {rows_of(sum(measured.stored))} rows are stored; {measured.in_windows}"
    noticed, estimated = left_out
    if noticed:
        yield f"  {noticed:,} combinations were beyond a bound and are left out; with those not noticed about {estimated:,}"
    yield from _changes(measured)


def _in_use(sides: Sequence[str], bound: PartnerBound) -> str:
    """What is done by a bound, and by what it was found."""
    parent, child = sides[bound.parent], sides[bound.child]
    if bound.kind == "partner":
        waits = f"rows of {parent} wait {_length(bound.within)} for those of {child}"
        return f"{waits}: the newest came at most {_length(bound.k)} later"
    after = f"a key of {parent} is finished {_length(bound.within)} after"
    if bound.kind == "clustered":
        return f"{after} a row of it: the newest came at most {_length(bound.k)} after the first"
    return f"{after} a larger one: the newest came at most {_length(bound.k)} after larger ones"


def _changes(measured: Measured) -> Iterator[str]:
    """The periods with the same bounds, the newest first, each with the reason why it ended."""
    lines = list[str]()
    for bounds, run in groupby(measured.history, key=lambda entry: entry[1].bounds):
        epochs = list(run)
        (first, _), (last, newest) = epochs[0], epochs[-1]
        named = "; ".join(_named(measured.sides, bounds)) or "no bound"
        when = f"epoch {first}" if first == last else f"epochs {first} to {last}"
        pairs = sum(seen.pairs for _, seen in epochs)
        lines.append(f"    {when}: {named}; {pairs:,} pairs{_beyond(measured.sides, bounds, newest)}")
    yield from reversed(lines[-_SHOWN:])


def _named(sides: Sequence[str], bounds: Sequence[int | None]) -> Iterator[str]:
    """`p within 18 SECONDS of e`."""
    for number, within in enumerate(bounds):
        parent, child = divmod(number, len(sides))
        if within is None:
            continue
        if parent == len(sides):
            yield f"keys of {sides[child]} in order within {_length(within)}"
        elif parent == child:
            yield f"rows of a key of {sides[child]} within {_length(within)}"
        else:
            yield f"{sides[child]} within {_length(within)} of {sides[parent]}"


def _beyond(sides: Sequence[str], bounds: Sequence[int | None], newest: DelayObservation) -> str:
    """What the last epoch of a period showed beyond its bounds."""
    for number, (within, delay) in enumerate(zip(bounds, newest.largest, strict=False)):
        parent, child = divmod(number, len(sides))
        if within is not None and delay > within:
            first = f"a larger key of {sides[child]}" if parent == len(sides) else f"one of {sides[parent]}"
            return f", until a row of {sides[child]} came {_length(delay)} after {first}: given up"
    return ""


def proposal_lines(
    join: str, measured: Measured, bounds: Sequence[PartnerBound], clause: Clause
) -> Iterator[str]:
    """The constraints that a join could use if they were declared; nothing where they would drop few rows."""
    yield from _key_proposals(join, measured, bounds, clause)
    used = [bound for bound in bounds if bound.within is not None and bound.kind == "partner"]
    if not used or not measured.history:
        return
    stored, fewer = sum(measured.stored), sum(measured.with_bounds(used))
    if stored - fewer < max(_LEAST_ROWS, _LEAST_SHARE * stored):
        return
    megabytes = (stored - fewer) * measured.row_bytes / 1e6
    yield f"join {join} could drop about {rows_of(stored - fewer)} of its {rows_of(stored)} rows ({megabytes:.2g} MB) by constraints:"
    for bound in used:
        parent, child = (measured.sides[side] for side in (bound.parent, bound.child))
        declared = clause(bound)
        pairs = sum(seen.pairs for _, seen in measured.history)
        yield (
            f"  rows of {child} came at most {_length(bound.k)} after those of {parent}, in {pairs:,} pairs"
            + (f": declare {declared}" if declared else "")
        )
    yield "  OPTIONS (constraints 'find') lets the join use what it finds, and leave out pairs that come later"


def _key_proposals(
    join: str, measured: Measured, bounds: Sequence[PartnerBound], clause: Clause
) -> Iterator[str]:
    """The constraints of single sides that a join could use, by which rows of the others go once their key is finished."""
    used = [bound for bound in bounds if bound.within is not None and bound.kind != "partner"]
    if not used or not measured.history or sum(measured.stored) < _LEAST_ROWS:
        return
    yield f"join {join} could drop rows once their key is finished, by constraints:"
    for bound in used:
        side, declared = measured.sides[bound.parent], clause(bound)
        seen = [keys.keys[bound.parent] for _, keys in measured.history if keys.keys]
        if bound.kind == "ordered":
            rows = sum(times.in_order for times in seen)
            what = f"keys of {side} ascend, but for {_length(bound.k)}"
        else:
            rows = sum(times.rows for times in seen)
            is_unique = all(times.repeated == NO_DELAY for times in seen)
            what = (
                f"no key of {side} came twice"
                if is_unique
                else f"rows of a key of {side} came within {_length(bound.k)}"
            )
            declared = clause(replace(bound, kind="unique")) if is_unique else declared
        yield f"  {what}, in {rows:,} rows that were compared" + (f": declare {declared}" if declared else "")


def measured_join(
    sides: Sequence[str], history: History, longest: Duration | None, work: Mapping[str, int]
) -> Measured:
    """A join's measurements; `work` has the state's bytes in the newest epoch."""
    rows = sum(history[-1][1].stored) if history else 0
    return Measured(sides, history, longest, work.get("state_bytes", 0) / max(rows, 1))


def _length(duration: Duration | None) -> str:
    if duration is None or duration == NO_DELAY:
        return "an unknown time"
    return render_duration(duration) if duration > 0 else "0 SECONDS"
