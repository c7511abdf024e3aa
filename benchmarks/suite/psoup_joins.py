"""PSoup's experiments with joins: Figure 8 (what an INVOKE of a join of two streams examines, by what is kept) and Figure 11 (structs
of one new query by themselves, or as one composite).

Tuples are integers of 0 to 255; a join has an inequality between both streams, with an offset, and one factor on the first. NoMat examines pairs
at each invocation, PSoup-P reads the kept pairs of the longest window in order of their earlier tuple, PSoup-C returns its answer.
Figure 8's ratio of NoMat is reported and not judged: columns examine a pair in nanoseconds. Headrace keeps the answer of a query that joins
streams (PSoup-C); the other two are baselines. In Figure 11 a probe is one search, and composites need half of them. The paper prints half of the time too; here it is
0.55 to 0.75, since making the pairs is part of it. The chooser takes a merge for equalities, as the paper does. Times are those of
one process, interleaved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np

from benchmarks.baselines.psoup.composites import Matched, Relop, chosen, merged, nested, separate
from benchmarks.baselines.windows import Ints
from benchmarks.charts import Bar, Curve, Curves
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.thresholds import Ratio

WINDOWS = (64, 128, 192, 256, 320, 384, 448, 512, 576)
_QUERIES = 20
_ABOUT = (__doc__ or "").split(".", 1)[1].strip()
_STRUCTS, _STORED = 1000, 20_000
FORMS: tuple[tuple[str, Relop, Relop], ...] = (
    ("=/<", "=", ">"),
    ("</=", "<", "="),
    ("</<", "<", ">"),
)
"""Shared and own factor, as Figure 11 names them: equality and inequality."""


@dataclass(frozen=True, slots=True)
class _Join:
    """A query: `r < limit AND r < s + offset`, over the last `window` tuples of both streams."""

    limit: int
    offset: int


@dataclass(frozen=True, slots=True)
class _Invoked:
    """Pairs examined, pairs in the answer, and seconds."""

    examined: int
    answer: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Probed:
    """Searches, pairs found, and seconds."""

    probes: int
    pairs: int
    seconds: float


def figure_8(rows: int, rounds: int) -> Report:
    """An INVOKE of joins over windows of 64 to 576 tuples."""
    del rows
    ways_by_window = {window: _by_window(window, max(rounds, 3)) for window in WINDOWS}
    shares = [ways["none"].examined / window**2 for window, ways in ways_by_window.items()]
    examined = [ways[way].examined for ways in ways_by_window.values() for way in ("partial", "complete")]
    last = ways_by_window[WINDOWS[-1]]
    ratios = [
        Ratio(
            "pairs examined by NoMat to the window's square, greatest to least",
            max(shares) / min(shares),
            1.5,
            True,
        ),
        Ratio("pairs examined where matches are kept", sum(examined), 0, True),
        Ratio(
            "time of PSoup-P to PSoup-C, 576 tuples",
            last["partial"].seconds / last["complete"].seconds,
            10,
            True,
        ),
    ]
    table = [
        {
            "tuples": window,
            "answer": ways["none"].answer // _QUERIES,
            **{f"{way}_examined": invoked.examined // _QUERIES for way, invoked in ways.items()},
            **{f"{way}_us": round(1e6 * invoked.seconds / _QUERIES, 1) for way, invoked in ways.items()},
        }
        for window, ways in ways_by_window.items()
    ]
    drawn = Curves(
        "Microseconds of an INVOKE",
        ("tuples in each window", "microseconds"),
        [
            Curve(
                way,
                list(WINDOWS),
                [1e6 * ways_by_window[window][way].seconds / _QUERIES for window in WINDOWS],
                kind,
            )
            for way, kind in (("none", "theirs"), ("partial", "theirs"), ("complete", "ours"))
        ],
    )
    notes = [f"{_QUERIES} queries a window. {_ABOUT}"]
    return Report("psoup-joins", "PSoup, Figure 8: joins", table, ratios, [], "", notes, picture=drawn)


def figure_11(rows: int, rounds: int) -> Report:
    """A thousand structs of a new query against the tuples of one stream."""
    stored = min(_STORED, max(1000, rows // 2))
    by_form = {name: _by_way(shared, own_relop, stored, max(rounds, 9)) for name, shared, own_relop in FORMS}
    equal, by_equal, neither = (by_form[name] for name, _, _ in FORMS)
    ratios = [
        Ratio(
            "=/<: probes of separate structs to two for each", equal["separate"].probes / (2 * _STRUCTS), 1
        ),
        Ratio(
            "=/<: probes of a composite to one for each, and one",
            equal["nested"].probes / (_STRUCTS + 1),
            1,
            True,
        ),
        Ratio(
            "=/<: time of separate structs to a composite",
            equal["separate"].seconds / equal["nested"].seconds,
            1.2,
        ),
        Ratio(
            "</=: time of separate structs to a merged composite",
            by_equal["separate"].seconds / by_equal["merged"].seconds,
            1,
        ),
        Ratio(
            "</<: searches that a merge would save, to pairs that all ways make",
            (neither["nested"].probes - neither["merged"].probes) / neither["nested"].pairs,
            0.1,
            True,
        ),
    ]
    table = [
        {
            "shared/own": name,
            "chosen": chosen(own_relop),
            "pairs": by_form[name]["separate"].pairs,
            **{f"{way}_probes": probed.probes for way, probed in by_form[name].items()},
            **{f"{way}_ms": round(1000 * probed.seconds, 2) for way, probed in by_form[name].items()},
        }
        for name, _, own_relop in FORMS
    ]
    bars = [
        Bar(f"{name}, {way}", 1000 * probed.seconds, "ours" if way == chosen(own_relop) else "theirs")
        for name, _, own_relop in FORMS
        for way, probed in by_form[name].items()
    ]
    notes = [f"{_STRUCTS:,} structs against {stored:,} tuples. {_ABOUT}"]
    return Report("composites", "PSoup, Figure 11: composite tuples", table, ratios, bars, "ms", notes)


def _by_window(window: int, rounds: int) -> dict[str, _Invoked]:
    """Sums over the queries."""
    rng = np.random.default_rng(window)
    left, right = (rng.integers(0, 256, WINDOWS[-1]) for _ in range(2))
    totals = {way: _Invoked(0, 0, 0.0) for way in ("none", "partial", "complete")}
    for _ in range(_QUERIES):
        query = _Join(int(rng.integers(64, 256)), int(rng.integers(0, 128)))
        for way, invoked in _invoked(left, right, query, WINDOWS[-1] - window, rounds).items():
            total = totals[way]
            totals[way] = _Invoked(
                total.examined + invoked.examined,
                total.answer + invoked.answer,
                total.seconds + invoked.seconds,
            )
    return totals


def _invoked(left: Ints, right: Ints, query: _Join, begin: int, rounds: int) -> dict[str, _Invoked]:
    """An INVOKE of the tuples from `begin` on, in each way; a tuple's number is its time."""
    pairs = _matches(left, right, query, 0)
    order = np.argsort(np.minimum(*pairs), kind="stable")
    pairs = (pairs[0][order], pairs[1][order])
    earliest = np.minimum(*pairs)
    current = [left[pairs[0][earliest >= begin]], right[pairs[1][earliest >= begin]]]

    def complete() -> tuple[int, list[Ints]]:
        return 0, [column.copy() for column in current]

    ways: dict[str, Callable[[], tuple[int, list[Ints]]]] = {
        "none": partial(_evaluated, left, right, query, begin),
        "partial": partial(_looked_up, left, right, pairs, earliest, begin),
        "complete": complete,
    }
    took: dict[str, list[float]] = {way: [] for way in ways}
    answers: dict[str, tuple[int, list[Ints]]] = {}
    for _ in range(rounds):
        for way, invoke in ways.items():
            started = time.perf_counter()
            answers[way] = invoke()
            took[way].append(time.perf_counter() - started)
    _require_equal([answer for _, answer in answers.values()])
    return {
        way: _Invoked(examined, len(answer[0]), median(took[way]))
        for way, (examined, answer) in answers.items()
    }


def _matches(left: Ints, right: Ints, query: _Join, begin: int) -> tuple[Ints, Ints]:
    """The pairs of tuples from `begin` on, by the selective factor first."""
    ours = np.flatnonzero(left[begin:] < query.limit) + begin
    meets = left[ours][:, None] < right[begin:][None, :] + query.offset
    one, other = np.nonzero(meets)
    return ours[one], other + begin


def _evaluated(left: Ints, right: Ints, query: _Join, begin: int) -> tuple[int, list[Ints]]:
    """NoMat: how many pairs were examined, and the answer."""
    examined = int((left[begin:] < query.limit).sum()) * (len(right) - begin)
    one, other = _matches(left, right, query, begin)
    return examined, [left[one], right[other]]


def _looked_up(
    left: Ints, right: Ints, pairs: tuple[Ints, Ints], earliest: Ints, begin: int
) -> tuple[int, list[Ints]]:
    """PSoup-P: the kept pairs from the window's begin on, and their tuples by id. Pairs examined: none."""
    low = int(np.searchsorted(earliest, begin))
    return 0, [left[pairs[0][low:]], right[pairs[1][low:]]]


def _require_equal(answers: list[list[Ints]]) -> None:
    ordered = [np.stack(answer)[:, np.lexsort(np.stack(answer))] for answer in answers]
    if any(not np.array_equal(ordered[0], other) for other in ordered[1:]):
        raise WrongAnswer("Expected one answer of all ways, found several.")


def _by_way(shared: Relop, own_relop: Relop, stored: int, rounds: int) -> dict[str, _Probed]:
    rng = np.random.default_rng(11)
    column = np.sort(rng.integers(0, stored // 20 if own_relop == "=" else 256, stored))
    values = rng.integers(0, stored // 20 if own_relop == "=" else 256, _STRUCTS)
    factor = (shared, int(np.median(column)))
    ways = {"separate": separate, "nested": nested, "merged": merged}
    took: dict[str, list[float]] = {name: [] for name in ways}
    matched_by_way: dict[str, Matched] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            started = time.perf_counter()
            matched_by_way[name] = way(column, factor, own_relop, values)
            took[name].append(time.perf_counter() - started)
    _require_equal([[matched.struct, matched.row] for matched in matched_by_way.values()])
    return {
        name: _Probed(matched.probes, len(matched.row), median(took[name]))
        for name, matched in matched_by_way.items()
    }
