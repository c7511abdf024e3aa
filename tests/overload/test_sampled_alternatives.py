"""Queries whose rows are sketched in a flood, and of which some are lost when that is not enough: bounds that hold, exact answers before and
after, the same after kills, and how that is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.archive.blocks import hashes_of, seed_of
from headrace.operators.base.batch import Batch
from headrace.overload.shedding import is_sampled
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.messages.task_messages import Split
from headrace.runtime.tasks.scan.alternative_rows import AlternativeRows
from headrace.runtime.tasks.scan.shed_rows import Samples
from headrace.time import SECOND
from tests.overload.floods import STREAM, Flood, by_name
from tests.overload.slow_machine import START

MEDIAN = (
    "SELECT window_end, k, COUNT(*) AS n, APPROX_PERCENTILE(v, 0.5) WITHIN 10 PERCENT AS mid, ERROR_BOUND(mid) AS bound"
    " FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k"
)
QOS = "WITH SHEDDING WITH QOS (delay (1 AT 2 SECONDS, 0 AT 10 SECONDS), sketches 0.9, loss (1 AT 0 PERCENT, 0.5 AT 90 PERCENT))"
EXACT = "SELECT window_end, k, COUNT(*) AS n FROM s [RANGE TUMBLING 1 SECOND] GROUP BY k"
LOSSY = f"{EXACT} WITH SHEDDING WITH QOS (delay (1 AT 2 SECONDS, 0 AT 10 SECONDS), loss (1 AT 0 PERCENT, 0.3 AT 95 PERCENT))"
FLOODED = range(8, 20)


@cache
def flood(path: Path, *, kills: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    seen: dict[str, Any] = {"shares": [], "status": [], "plan": []}

    def note(hub: Hub) -> None:
        seen["shares"].append(by_name(hub).get("mid"))
        seen["status"].append(hub.status()["overload"]["queries"]["mid"])
        seen["plan"].append(hub.execute("EXPLAIN QUERY mid")[0].message)

    def answers(hub: Hub) -> None:
        seen["answers"] = hub.query("mid").history().to_pylist()

    queries = {"mid": f"{MEDIAN} {QOS}", "lossy": LOSSY, "exact": EXACT}
    driven = Flood(queries, FLOODED, 60, sketch=8e-4)
    with pytest.MonkeyPatch.context() as patch:
        home = path / ("kills" if kills else "home")
        return driven.drive(home, patch, kills=kills, after_epoch=note, at_end=answers), seen


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flood")


def test_rows_are_sketched_then_lost_and_return_in_reverse(folder: Path) -> None:
    _, seen = flood(folder, kills=False)
    order = list(dict.fromkeys(seen["shares"]))
    assert order[0] is None
    assert all(shares[0] == 0 for shares in order[1:])
    least = min(shares[1] for shares in order[1:])
    assert least < 1
    assert seen["shares"][-1] is None
    for shares, status, plan in zip(seen["shares"], seen["status"], seen["plan"], strict=True):
        assert status["sketched"] == (shares is not None)
        assert status["shares"] == [1.0 if shares is None else shares[1]]
        assert ("of them are: the rest is lost" in plan) == (shares is not None and shares[1] < 1)
    assert max(status["lost"] for status in seen["status"]) == 1 - least
    assert seen["status"][-1]["lost"] == 0


def test_answers_are_exact_without_a_sketched_row_and_within_their_errors_otherwise(folder: Path) -> None:
    pushed, seen = flood(folder, kills=False)
    counts: dict[str, int] = {"exact": 0, "sampled": 0, "n": 0, "mid": 0}
    for row in seen["answers"]:
        values = sorted(values_of(pushed, row))
        middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
        if row["kept"] == 1:
            assert (row["n"], row["n_error"]) == (len(values), 0)
            assert abs(row["mid"] - middle) <= row["bound"]
            counts["exact"] += row["bound"] == 0 and row["mid"] == middle
        else:
            counts["sampled"] += 1
            counts["n"] += abs(row["n"] - len(values)) <= row["n_error"]
            counts["mid"] += row["bound"] is None or abs(row["mid"] - middle) <= row["bound"]
            assert row["n_error"] > 0
    assert counts["exact"] > 10
    assert counts["sampled"] > 10
    assert counts["n"] >= 0.8 * counts["sampled"]
    assert counts["mid"] >= 0.9 * counts["sampled"]


def values_of(pushed: list[dict[str, Any]], row: Mapping[str, Any]) -> list[int]:
    end = round(row["window_end"].timestamp()) * SECOND
    return [each["v"] for each in pushed if each["k"] == row["k"] and end - 6 * SECOND <= each["at"] < end]


def test_a_later_one_reads_the_archive_exactly(folder: Path) -> None:
    pushed, seen = flood(folder, kills=False)
    with Hub(folder / "home", LocalExecutor()) as hub:
        hub.execute(f"CREATE QUERY later AS {MEDIAN} {QOS}")
        hub.catch_up()
        later = hub.query("later").history().to_pylist()
    assert len(later) >= len(seen["answers"])
    assert all(row["kept"] == 1 and row["bound"] == 0 for row in later)
    assert all(row["n"] == len(values_of(pushed, row)) for row in later)


def test_kills_and_jobs_that_fail_change_no_choice_and_no_answer(folder: Path) -> None:
    _, seen = flood(folder, kills=False)
    _, again = flood(folder, kills=True)
    assert again["shares"] == seen["shares"]
    assert again["answers"] == seen["answers"]


class Reader:
    """What it was given."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)


@pytest.mark.parametrize(
    ("rate", "shares", "split", "sketched", "seen"),
    [
        (1.0, (1.0, 1.0), Split("s", 0), False, 1.0),
        (1.0, (0.0, 1.0), Split("s", 0), True, 1.0),
        (1.0, (0.0, 0.25), Split("s", 0), True, 0.25),
        (0.3, (1.0, 1.0), Split("s", 0), True, 0.25),
        (0.5, (0.0, 0.125), Split("s", 0), True, 0.125),
        (1.0, (0.0, 0.25), Split("s", 0, sample_rate=1.0, shares={"q": (0.0, 0.5)}), True, 0.5),
        (0.3, (0.0, 0.25), Split("s", 0, sample_rate=1.0), False, 1.0),
        (1.0, (1.0, 1.0), Split("s", 0, sample_rate=0.5, shares={"q": (0.0, 1.0)}), True, 0.5),
    ],
)
def test_rows_of_a_sample_are_sketched_and_represent_a_power_of_two(
    rate: float, shares: tuple[float, ...], split: Split, sketched: bool, seen: float
) -> None:
    positions, seed = np.arange(5000), seed_of("s")
    reader = Reader()
    part = AlternativeRows([reader], frozenset({"v"}), seed, "q", shares, rate)  # type: ignore[list-item]
    Samples([part]).add(Batch({"v": pa.array(positions)}, positions, positions), split)
    (batch,) = reader.batches
    assert batch.position.tolist() == positions[is_sampled(hashes_of(positions, seed), seen)].tolist()
    assert set(batch.columns["__sketched"].to_pylist()) == {sketched}
    assert set(batch.columns["#weight"].to_pylist()) == {1 / seen}
    assert part.shed == 5000 - batch.rows
    assert part.arrived.tolist() == [5000]


def test_the_stream_s_own_share_is_of_its_sketched_rows_too(tmp_path: Path) -> None:
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        hub.execute(STREAM)
        hub.execute(f"CREATE QUERY mid AS {MEDIAN} {QOS}")
        hub.execute("ALTER STREAM s SET (keep '0.3')")
        hub.push(
            "s", [{"at": START + n * SECOND // 400, "k": n % 2, "v": n * 7919 % 10_007} for n in range(8000)]
        )
        hub.catch_up()
        rows = hub.query("mid").history().to_pylist()
        assert len(rows) > 5
        assert {row["kept"] for row in rows} == {0.25}
        assert all(row["bound"] is None or row["bound"] > 0 for row in rows)
