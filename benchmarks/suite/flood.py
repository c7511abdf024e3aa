"""A flood of five times what a hub on Spark can take, for ten minutes: answers worth most, an archive that is whole, and exact answers after it.

Twelve queries (`benchmarks/floods/flooded_queries.py`): four alerts, five dashboards and three reports, each with graphs of what its answers are worth by
delay and by rows lost. Rows are pushed by the clock, at five times the capacity that was measured just before, whatever the hub does; each row's delay is from the time at
which its push was due to the publication of the epoch that has read it. The hub chooses shares by QOS; rows dropped at random know as much (when there is too much to do,
what a row costs, and how much is to be saved), and are dropped of all queries in the same share; with backpressure alone rows wait. These two are flooded for
a minute at most, and compared with the same first minute of QOS. After the flood rows continue to arrive at a twentieth of the capacity, while all answers are repaired.
The archive is compared with what was pushed, by count and by a sum of the hashes of rows; answers, and intervals of estimates, with counts and sums of all rows. `--minutes` is the length of
the flood; repair takes about five times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from benchmarks.charts import Bar, Bars, Curve, Curves, Grid
from benchmarks.floods.flooded_queries import KINDS, QUERIES
from benchmarks.floods.spark_flood import QOS, AfterFlood, Flooded, Moment, flooded
from benchmarks.fresh_processes import in_each
from benchmarks.report import Report
from benchmarks.thresholds import Ratio

TIMES: Final = 5.0
MINUTES: Final = 10.0
MOST_OF_OTHERS: Final = 60.0
"""Seconds of the flood of the other policies."""
OTHERS: Final = {"random dropping": 1.3, "backpressure": 2.0}
"""The other policies, and how many times their utility has to be reached."""


def flood(rows: int, rounds: int, minutes: float = MINUTES) -> Report:
    """One run of each policy; `rows` and `rounds` do not matter."""
    del rows, rounds
    seconds = 60 * minutes
    short = min(seconds, MOST_OF_OTHERS)
    (ours,) = in_each(1, flooded, QOS, TIMES, seconds)
    done = {QOS: ours}
    for name in OTHERS:
        (done[name],) = in_each(1, flooded, name, TIMES, short, ours.capacity)
    assert __doc__ is not None
    assert ours.after is not None
    return Report(
        "flood",
        f"A flood of five times the capacity for {minutes:g} minutes, on Spark",
        _table(done, short),
        [*_worth(done, short), *_delays(ours), *_afterwards(ours, ours.after)],
        [],
        f"utility of {len(QUERIES)}",
        [__doc__.strip(), _note(ours, ours.after, seconds)],
        picture=_picture(done, short),
    )


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


def _afterwards(ours: Flooded, after: AfterFlood) -> list[Ratio]:
    answers = after.answers
    return [
        Ratio("rows archived to rows pushed", after.archive.rows / ours.pushed.rows, 1),
        Ratio("rows archived to rows pushed", after.archive.rows / ours.pushed.rows, 1, at_most=True),
        Ratio("checksum of the archive is that of the rows pushed", float(after.archive == ours.pushed), 1),
        Ratio("answers after repair that are those of all rows", 1 - answers.wrong / answers.answers, 1),
        Ratio("intervals of estimates that hold the truth", answers.honest, 0.93),
    ]


def _note(ours: Flooded, after: AfterFlood, seconds: float) -> str:
    answers = after.answers
    return (
        f"The flood lasted {seconds:.0f} s. Capacity {ours.capacity:,.0f} rows a second; {ours.pushed.rows:,} rows pushed, {after.archive.rows:,} archived, checksums "
        f"{ours.pushed.total:016x} and {after.archive.total:016x}. {after.windows:,} windows were repaired in {after.seconds:.0f} s; then {answers.wrong:,} of {answers.answers:,} answers "
        f"differed from those of all rows. Of {answers.intervals:,} intervals of estimates {answers.held:,} held the truth."
    )


def _picture(done: Mapping[str, Flooded], short: float) -> Grid:
    ours = done[QOS]

    def curve(name: str, kind: str, value: Callable[[Moment], float]) -> Curve:
        run = done[name]
        return Curve(name, [moment.at for moment in run.moments], [value(moment) for moment in run.moments], kind)

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
