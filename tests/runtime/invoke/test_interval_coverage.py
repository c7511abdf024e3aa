"""Intervals of questions from the archive's own files: of many streams, each with blocks drawn by another seed, about 95 % hold the truth."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke.questions import answer
from headrace.runtime.invoke.questions.clauses import question_of
from headrace.runtime.plan.bound_queries import bind_text
from headrace.time import SECOND

ROWS = 24_000
START = 1_700_000_000 * SECOND
OF_ROWS = (
    "SELECT COUNT(*) AS n, SUM(v) AS total, AVG(v) AS mean, SUM(v) / SUM(w) AS ratio,"
    " 100 * COUNT(*) FILTER (WHERE w > 3) / COUNT(*) AS percent, PERCENTILE(v, 0.5) AS middle,"
    " PERCENTILE(v, 0.9) AS high FROM {} WHERE v > 8"
)
BY_GROUP = "SELECT g, COUNT(*) AS n, SUM(v) AS total, AVG(v) AS mean FROM {} GROUP BY g"
OF_KEYS = (
    "SELECT COUNT(*) AS n, SUM(v) AS total, AVG(v) AS mean, COUNT(DISTINCT k) AS ks, SUM(v) / SUM(w) AS ratio"
    " FROM {} WHERE v > 8"
)
BY_K = (
    "SELECT COUNT(*) AS n, AVG(days) AS mean, SUM(top) AS total FROM"
    " (SELECT k, COUNT(DISTINCT g) AS days, MAX(v) AS top FROM {} GROUP BY k HAVING COUNT(*) > 2) AS q"
)
MET = "SELECT COUNT(*) AS n, SUM(a.v * b.w) AS total FROM {0} AS a, {0}b AS b WHERE a.k = b.k AND b.v > 12"


def rows(seed: int, shift: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    v = rng.gamma(2.0, 10.0, ROWS)
    return pa.table(
        {
            "at": pa.array(START + np.arange(ROWS) * 1000).cast(pa.timestamp("us", tz="UTC")),
            "k": (rng.exponential(900.0, ROWS)).astype(np.int64) + shift * 1_000_000,
            "g": rng.integers(0, 3, ROWS),
            "v": v,
            "w": v * rng.uniform(0.5, 1.5, ROWS) / 10,
        }
    )


def coverage(folder: Path, blocks_by: str, texts: tuple[str, ...], seeds: int) -> dict[str, float]:
    """How many of the intervals of each value hold what the question has for all rows; of the same rows but other seeds.

    Blocks of keys have one seed: there the keys differ.
    """
    held, every = Counter[str](), Counter[str]()
    with open_hub(folder, local=True) as hub:
        for seed in range(seeds):
            names = [f"s{seed}", f"s{seed}b"] if blocks_by else [f"s{seed}"]
            for number, name in enumerate(names):
                hub.execute(
                    f"CREATE STREAM {name} (at TIMESTAMP, k BIGINT, g BIGINT, v DOUBLE, w DOUBLE) USING push"
                    f" OPTIONS (blocks '8'{blocks_by}) TIMESTAMP BY at"
                )
                hub.push(name, rows(number, seed if blocks_by else 0))
            hub.catch_up()
            for text in texts:
                for one, other in zip(
                    *(asked(hub, text.format(names[0]), share) for share in (0.25, 1.0)), strict=True
                ):
                    for name in (name for name in one if f"{name}_error" in one):
                        assert other[f"{name}_error"] == 0
                        every[f"{text[:40]} {name}"] += 1
                        held[f"{text[:40]} {name}"] += abs(one[name] - other[name]) <= one[f"{name}_error"]
            for name in names:
                hub.execute(f"DROP STREAM {name}")
    return {name: held[name] / count for name, count in every.items()}


def asked(hub: Hub, text: str, share: float) -> list[dict[str, float]]:
    """The answer from a share of each run."""
    home = hub.home
    question = question_of(bind_text(home.catalog, text), home.catalog.stream)
    sample = answer._sample(home, home.latest(), question)
    sample.extend(share, lambda: False)
    rows: list[dict[str, float]] = answer._asked(question, sample, *sample.answer()).table.to_pylist()
    return rows


CASES = pytest.mark.parametrize(
    ("blocks_by", "texts"), [("", (OF_ROWS, BY_GROUP)), (", blocksBy 'k'", (OF_KEYS, BY_GROUP, BY_K, MET))]
)


@CASES
def test_intervals_hold_the_truth_about_as_often_as_they_say(
    tmp_path: Path, blocks_by: str, texts: tuple[str, ...]
) -> None:
    """Of a few seeds: all values together, since one of them alone would vary too much."""
    found = coverage(tmp_path / "home", blocks_by, texts, 25)
    assert len(found) >= 10
    assert 0.90 <= np.mean(list(found.values())) <= 0.99, found
    assert min(found.values()) >= 0.75, found


@pytest.mark.soak
@CASES
def test_each_interval_of_a_thousand_holds_the_truth_as_often_as_it_says(
    tmp_path: Path, blocks_by: str, texts: tuple[str, ...]
) -> None:
    found = coverage(tmp_path / "home", blocks_by, texts, 1000)
    assert {name: part for name, part in found.items() if not 0.93 <= part <= 0.97} == {}
