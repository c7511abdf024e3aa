"""A flood of five times what a hub on Spark can take, for ten minutes: answers worth most, an archive that is whole, and exact answers after it.

Twelve queries (`benchmarks/floods/flooded_queries.py`): four alerts, five dashboards and three reports, each with graphs of what its answers are worth by
delay and by rows lost. Rows are pushed by the clock, at five times the capacity that was measured just before, whatever the hub does; each row's delay is from the time at
which its push was due to the publication of the epoch that has read it. The hub chooses shares by QOS; rows dropped at random know as much (when there is too much to do,
what a row costs, and how much is to be saved), and are dropped of all queries in the same share; with backpressure alone rows wait. These two are flooded for
a minute at most, and compared with the same first minute of QOS. After the flood rows continue to arrive at a twentieth of the capacity, while all answers are repaired.
Answers later than forty seconds after the flood are worth nothing, and are drawn with the delay that they have then. The archive is compared with what was pushed, by count and by a sum of the hashes of rows; answers, and intervals of estimates, with counts and sums of all rows. `--minutes` is the length of
the flood. Repair does all that was left undone, so it takes at least four times as long; with `--repaired` minutes less than that a second, shorter flood is repaired, and of the
long one all else is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from benchmarks.charts import Bar, Bars, Curve, Curves, Grid
from benchmarks.floods.flooded_queries import KINDS, QUERIES
from benchmarks.floods.spark_flood import QOS, Flooded, Moment, flooded
from benchmarks.fresh_processes import in_each
from benchmarks.report import Report
from benchmarks.thresholds import Ratio

TIMES: Final = 5.0
MINUTES: Final = 10.0
MOST_OF_OTHERS: Final = 60.0
"""Seconds of the flood of the other policies."""
OTHERS: Final = {"random dropping": 1.3, "backpressure": 2.0}
"""The other policies, and how many times their utility has to be reached."""


def flood(rows: int, rounds: int, minutes: float = MINUTES, repaired: float = MINUTES) -> Report:
    """One run of each policy; `rows` and `rounds` do not matter."""
    del rows, rounds
    seconds, fewer = 60 * minutes, 60 * min(minutes, repaired)
    ours = _run(QOS, seconds, repair=seconds == fewer)
    done = {QOS: ours}
    exact = ours if seconds == fewer else _run(QOS, fewer, ours.capacity, repair=True)
    short = min(seconds, MOST_OF_OTHERS)
    done |= {name: _run(name, short, ours.capacity) for name in OTHERS}
    assert __doc__ is not None
    return Report(
        "flood",
        f"A flood of five times the capacity for {minutes:g} minutes, on Spark",
        _table(done, short),
        [*_worth(done, short), *_delays(ours), *_afterwards(ours, exact)],
        [],
        f"utility of {len(QUERIES)}",
        [
            __doc__.strip(),
            _note(ours, seconds),
            *([] if exact is ours else [_note(exact, fewer)]),
            _repair(exact),
        ],
        picture=_picture(done, short),
    )


def _run(policy: str, seconds: float, capacity: float | None = None, *, repair: bool = False) -> Flooded:
    work = partial(flooded, repair=repair)
    (done,) = in_each(1, work, policy, TIMES, seconds, capacity)
    return done


def _table(done: Mapping[str, Flooded], short: float) -> list[dict[str, Any]]:
    rows = [_row(name, run, short) for name, run in done.items()]
    ours = done[QOS]
    return [_row(QOS, ours, ours.moments[-1].at + 1), *rows] if ours.moments[-1].at > short else rows


def _row(name: str, run: Flooded, seconds: float) -> dict[str, Any]:
    moments = [moment for moment in run.moments if moment.at < seconds]
    return {
        "policy": name,
        "seconds": round(seconds),
        "rows_a_second": round(run.rate),
        "times_the_capacity": round(run.rate / run.capacity, 2),
        "utility_of_12": round(run.utility(seconds), 2),
        "greatest_delay_s": round(max(moment.delay for moment in moments), 1),
        **{f"{kind}_kept": f"{_mean(moments, _kept_of(kind)):.0%}" for kind in KINDS},
        "changes_of_shares": run.changes,
    }


def _mean(moments: list[Moment], value: Callable[[Moment], float]) -> float:
    return sum(map(value, moments)) / len(moments)


def _kept_of(kind: str) -> Callable[[Moment], float]:
    return lambda moment: moment.kept[kind]


def _worth(done: Mapping[str, Flooded], short: float) -> list[Ratio]:
    """The rate was that of the flood, and utility is a multiple of that of the others."""
    ours = done[QOS]
    ratios = [Ratio("rows pushed a second to the capacity", ours.rate / ours.capacity, 0.98 * TIMES)]
    for name, bound in OTHERS.items():
        theirs = max(done[name].utility(short), 1e-9)
        ratios.append(Ratio(f"utility to that of {name}", ours.utility(short) / theirs, bound))
    return ratios


def _delays(ours: Flooded) -> list[Ratio]:
    """No answer is later than its graph allows."""
    worthless = {query.kind: query.worthless_after for query in QUERIES.values()}
    return [
        Ratio(
            f"greatest delay to where {kind} are worthless",
            ours.greatest_delay / worthless[kind],
            1,
            at_most=True,
        )
        for kind in KINDS
    ]


def _afterwards(ours: Flooded, exact: Flooded) -> list[Ratio]:
    """The archive and the intervals of the whole flood; the answers of the one that was repaired."""
    archive, answers = ours.after.archive, exact.after.answers
    return [
        Ratio("rows archived to rows pushed", archive.rows / ours.pushed.rows, 1),
        Ratio("rows archived to rows pushed", archive.rows / ours.pushed.rows, 1, at_most=True),
        Ratio("checksum of the archive is that of the rows pushed", float(archive == ours.pushed), 1),
        Ratio("intervals of estimates that hold the truth", ours.after.answers.honest, 0.93),
        Ratio("answers after repair that are those of all rows", 1 - answers.wrong / answers.answers, 1),
    ]


def _note(run: Flooded, seconds: float) -> str:
    after = run.after
    return (
        f"A flood of {seconds:.0f} s: {run.capacity:,.0f} rows a second are the capacity; {run.pushed.rows:,} rows pushed, {after.archive.rows:,} archived, checksums "
        f"{run.pushed.total:016x} and {after.archive.total:016x}; of {after.answers.intervals:,} intervals of estimates {after.answers.held:,} held the truth."
    )


def _repair(run: Flooded) -> str:
    after = run.after
    return (
        f"After the flood {after.windows:,} windows were repaired in {after.seconds:.0f} s; then {after.answers.wrong:,} of {after.answers.answers:,} answers "
        "differed from those of all rows."
    )


def _picture(done: Mapping[str, Flooded], short: float) -> Grid:
    ours = done[QOS]

    def curve(name: str, kind: str, value: Callable[[Moment], float]) -> Curve:
        run = done[name]
        return Curve(
            name, [moment.at for moment in run.moments], [value(moment) for moment in run.moments], kind
        )

    def of_policies(title: str, unit: str, value: Callable[[Moment], float]) -> Curves:
        drawn = [curve(name, "ours" if name == QOS else "yardstick", value) for name in done]
        return Curves(title, ("seconds of the flood", unit), drawn)

    at = [moment.at for moment in ours.moments]
    kept = [Curve(kind, at, [100 * moment.kept[kind] for moment in ours.moments], "ours") for kind in KINDS]
    bars = [
        Bar(name, run.utility(short), "ours" if name == QOS else "yardstick") for name, run in done.items()
    ]
    return Grid(
        "A flood of five times the capacity",
        [
            of_policies("Delay of answers", "seconds", lambda moment: moment.delay),
            Curves("Rows that answers are from, by QOS", ("seconds of the flood", "% of the rows"), kept),
            of_policies("Utility", f"of {len(QUERIES)}", lambda moment: moment.utility),
            Bars(f"Utility, first {short:.0f} s", f"of {len(QUERIES)}", bars),
        ],
    )
