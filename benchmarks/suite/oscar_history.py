"""What is owed to an archive that is read in part: nothing is lost, estimates are honest, repair is exact, sums and late joins are those of all rows.

Five parts, each of a hub in this process, with counters that have to be exact. Shares of 1/2 to 1/32 of a stream's rows are read: the archive is compared with the rows pushed,
and the rows that the query saw with those whose hash is below the share; then all return, and windows are compared with those of all rows. A run of the archive is made of the same rows
in several cuts, and its file compared byte by byte. Estimators read five thousand samples of the same rows: errors on average are in standard errors of that average. Questions about hours and days read sums that a query by
the hour stores, or that the question before has left. A join is registered when a minute, or four, of both sides are archived, and live rows arrive at a tenth of, at, and at ten times the
rate at which it reads the archive: the lead of one side over the other is in seconds of event time, and the window of the join is ten seconds long.
Bars OB-5, 6, 8, 9 and 10 after Chandrasekaran and Franklin, Remembrance of Streams Past, 2004.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from benchmarks import folders
from benchmarks.archive_history.hourly_sums import Asked, asked
from benchmarks.archive_history.late_join import WINDOW, Joined, joined
from benchmarks.archive_history.sampled_estimates import Estimated, estimated
from benchmarks.archive_history.shed_and_repaired import Shed, same_blocks, shed
from benchmarks.charts import Bar, Bars, Curve, Curves, Grid
from benchmarks.report import Report
from benchmarks.thresholds import Ratio

SHARES: Final = (1.0, 0.5, 0.25, 0.125, 0.03125)
QUARTER: Final = 0.25
SEEDS: Final = 5000
CUTS: Final = (500, 7_777, 24_000)
"""Rows that arrive together, of the same run."""
RATES: Final = (0.1, 1.0, 10.0)
SHORT, LONG = 12, 48
"""Batches of five seconds that are archived before the join."""
MOST_STORED: Final = 1.3
"""What a join of a long archive stores at most, to that of a short one."""


def oscar_history(rows: int, rounds: int) -> Report:
    """One run of everything: it counts, and takes no time; `rows` and `rounds` do not matter."""
    del rows, rounds
    root = folders.fresh("oscar-history")
    shares = [shed(root / f"shed-{number}", share) for number, share in enumerate(SHARES)]
    estimators = estimated(SEEDS)
    questions = asked(root / "hours")
    joins = {
        (archived, rate): joined(root / f"join-{archived}-{rate}", archived, rate)
        for archived in (SHORT, LONG)
        for rate in RATES
    }
    shutil.rmtree(root)
    assert __doc__ is not None
    return Report(
        "oscar-history",
        "What answers over an archive owe to it (OSCAR, OB-5, 6, 8, 9, 10)",
        [
            *_of_shares(shares),
            *_of_estimators(estimators),
            *_of_questions(questions),
            *_of_joins(joins.values()),
        ],
        [
            *_archive_is_whole(shares),
            *_estimates_are_honest(estimators),
            *_repair_is_exact(shares),
            *_sums_are_read(questions),
            *_joins_keep_pace(joins),
        ],
        [],
        "",
        [__doc__.strip()],
        picture=_picture(shares, estimators, questions, joins),
    )


def _of_shares(shares: Sequence[Shed]) -> list[dict[str, Any]]:
    return [
        {
            "part": f"shed, {done.share:g} is read",
            "rows": done.pushed,
            "archived": done.archived,
            "seen": done.seen,
            "expected": done.below,
            "windows": done.windows,
            "repaired": done.repaired,
            "greatest_error": f"{done.before.max():.2%} before, {done.after.max():.2%} after",
        }
        for done in shares
    ]


def _of_estimators(estimators: Sequence[Estimated]) -> list[dict[str, Any]]:
    return [
        {
            "part": done.name,
            "mean_error_in_standard_errors": round(done.bias, 2),
            "in_deviations": round(done.off, 3),
            "coverage": f"{done.coverage:.1%}",
        }
        for done in estimators
    ]


def _of_questions(questions: Sequence[Asked]) -> list[dict[str, Any]]:
    return [{"part": done.name, "seen": done.read, "expected": done.expected} for done in questions]


def _of_joins(joins: Sequence[Joined]) -> list[dict[str, Any]]:
    return [
        {
            "part": f"join of {5 * done.archived} s, live rate {done.rate:g}",
            "epochs": len(done.leads),
            "greatest_lead_s": max(done.leads),
            "most_stored_KB": round(max(done.stored) / 1e3, 1),
        }
        for done in joins
    ]


def _archive_is_whole(shares: Sequence[Shed]) -> list[Ratio]:
    """OB-5."""
    least, most = (function(done.archived / done.pushed for done in shares) for function in (min, max))
    return [
        Ratio("OB-5: rows archived to rows pushed, least of all shares", least, 1),
        Ratio("OB-5: rows archived to rows pushed, greatest of all shares", most, 1, at_most=True),
        Ratio(
            "OB-5: archives that are the rows pushed, of all shares",
            _part([done.is_whole for done in shares]),
            1,
        ),
        Ratio(
            "OB-5: rows seen that are those with a hash below the share, of all shares",
            _part([done.seen == done.below for done in shares]),
            1,
        ),
    ]


def _estimates_are_honest(estimators: Sequence[Estimated]) -> list[Ratio]:
    """OB-6."""
    worst = max(abs(done.bias) for done in estimators if done.is_linear)
    off = max(abs(done.off) for done in estimators)
    covers = [done.coverage for done in estimators]
    return [
        Ratio(
            f"OB-6: greatest mean error of sums over {SEEDS:,} samples, in its standard errors",
            worst,
            3,
            at_most=True,
        ),
        Ratio("OB-6: greatest mean error of any estimator, in standard deviations", off, 0.1, at_most=True),
        Ratio("OB-6: least coverage of 95 % intervals", min(covers), 0.93),
        Ratio("OB-6: greatest coverage of 95 % intervals", max(covers), 0.97, at_most=True),
    ]


def _repair_is_exact(shares: Sequence[Shed]) -> list[Ratio]:
    """OB-8."""
    quarter = next(done for done in shares if done.share == QUARTER)
    reduced = [done for done in shares if done.share < 1]
    return [
        Ratio("OB-8: greatest error of a window at 1/4, before repair", float(quarter.before.max()), 0.001),
        Ratio(
            "OB-8: greatest error of any window after repair",
            float(max(done.after.max() for done in shares)),
            0,
            at_most=True,
        ),
        Ratio(
            "OB-8: windows repaired to windows emitted, least",
            min(done.repaired / done.windows for done in reduced),
            1,
        ),
        Ratio(
            "OB-8: a batch that is archived again, in other cuts, is the same file",
            float(same_blocks(CUTS)),
            1,
        ),
    ]


def _sums_are_read(questions: Sequence[Asked]) -> list[Ratio]:
    """OB-9."""
    return [
        Ratio("OB-9: questions whose answer is exact", _part([done.is_exact for done in questions]), 1),
        Ratio(
            "OB-9: questions that read the rows they have to, and no other",
            _part([done.read == done.expected for done in questions]),
            1,
        ),
    ]


def _joins_keep_pace(joins: dict[tuple[int, float], Joined]) -> list[Ratio]:
    """OB-10."""
    lead = max(max(done.leads) for done in joins.values())
    stored = max(max(joins[LONG, rate].stored) / max(joins[SHORT, rate].stored) for rate in RATES)
    return [
        Ratio(
            "OB-10: joins whose answers are those of all rows",
            _part([done.is_right for done in joins.values()]),
            1,
        ),
        Ratio("OB-10: greatest lead of a side to the window", lead / WINDOW, 1, at_most=True),
        Ratio(
            "OB-10: bytes stored, an archive four times as long, greatest", stored, MOST_STORED, at_most=True
        ),
    ]


def _part(held: Sequence[bool]) -> float:
    return sum(held) / len(held)


def _picture(
    shares: Sequence[Shed],
    estimators: Sequence[Estimated],
    questions: Sequence[Asked],
    joins: dict[tuple[int, float], Joined],
) -> Grid:
    across = [done.share for done in shares]
    kept = Curves(
        "OB-5: rows, by the share that is read",
        ("share", "rows"),
        [
            Curve("archived", across, [float(done.archived) for done in shares], "ours"),
            Curve("seen by the query", across, [float(done.seen) for done in shares], "theirs"),
        ],
    )
    quarter = next(done for done in shares if done.share == QUARTER)
    windows = list(range(1, quarter.windows + 1))
    repaired = Curves(
        "OB-8: errors of windows at 1/4",
        ("window", "% of the sum"),
        [
            Curve("before repair", windows, [100 * float(error) for error in quarter.before], "theirs"),
            Curve(
                "the interval allows", windows, [100 * float(error) for error in quarter.allowed], "yardstick"
            ),
            Curve("after repair", windows, [100 * float(error) for error in quarter.after], "ours"),
        ],
    )
    covered = Bars(
        f"OB-6: intervals that hold the truth, of {SEEDS:,}",
        "%, of 95",
        [Bar(done.name, 100 * done.coverage, "ours") for done in estimators],
    )
    read = Bars(
        "OB-9: rows read by a question", "rows", [Bar(done.name, done.read, "ours") for done in questions]
    )
    return Grid(
        "What answers over an archive owe to it",
        [kept, repaired, covered, read, _leads(joins), _stored(joins)],
    )


def _leads(joins: dict[tuple[int, float], Joined]) -> Curves:
    longest = max(len(joins[LONG, rate].leads) for rate in RATES)
    drawn = [
        Curve(f"live rate {rate:g}", list(range(len(done.leads))), done.leads, "ours")
        for rate in RATES
        for done in (joins[LONG, rate],)
    ]
    bound = Curve("window", [0, longest], [float(WINDOW)] * 2, "yardstick")
    return Curves("OB-10: lead of one side over the other", ("epochs", "seconds"), [*drawn, bound])


def _stored(joins: dict[tuple[int, float], Joined]) -> Curves:
    drawn = [
        Curve(
            f"{5 * archived} s archived, live rate {rate:g}",
            list(range(len(done.stored))),
            [size / 1e3 for size in accumulate(done.stored, max)],
            "ours" if archived == LONG else "theirs",
        )
        for (archived, rate), done in joins.items()
    ]
    return Curves("OB-10: the most that the join has stored", ("epochs", "KB"), drawn)
