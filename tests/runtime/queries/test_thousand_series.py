"""A thousand series in one stream, a persistent query for each statistic: each as the reference has it (PAT-1, PAT-2, PAT-4)."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND
from tests.laws.comparing import canonical as comparable
from tests.runtime.rig import Row, answers, expected, put, script

STATISTICS = {
    "counted": "COUNT(y) AS a, SUM(y) AS b, AVG(y) AS c, MIN(y) AS d, MAX(y) AS e",
    "spread": "VARIANCE(y) AS a, STDDEV_POP(y) AS b, SKEWNESS(y) AS c, KURTOSIS(y) AS d",
    "trend": "SLOPE(y) AS a, R2(y) AS b",
    "pairs": "CORR(y, g) AS a, COVAR_POP(y, g) AS b, SLOPE(y, g) AS c, INTERCEPT(y, g) AS d",
    "fading": "EWMA(y, INTERVAL 4 SECONDS) AS a",
    "ends": "FIRST(y) AS a, LAST(y, TRUE) AS b",
    "bits": "BIT_AND(g) AS a, BIT_OR(g) AS b, BIT_XOR(x) FILTER (WHERE y > 0) AS c",
    "at_the_ends": "MAX_BY(g, y) AS a, MIN_BY(y, g) AS b, MAX_BY(k, y) FILTER (WHERE g > 1) AS c",
    "standing_out": "ZSCORE(y) AS a",
    "quantiles": "MEDIAN(y) AS a, PERCENTILE(y, 0.9) AS b, MODE(y) AS c",
}
QUERIES = {
    name: f"SELECT x, {items} FROM s [RANGE 12 SECONDS SLIDE 4 SECONDS] GROUP BY x"
    for name, items in STATISTICS.items()
}
SERIES = 1200
BEGIN = 1_700_000_002


def readings(seed: int, rounds: int) -> list[Row]:
    """One reading of every series a round of two seconds, some of them missing."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for step in range(rounds):
        values = rng.integers(-40, 40, SERIES) / 4
        missing = rng.random(SERIES) < 0.1
        rows += [
            {
                "k": "a",
                "g": int(values[one] * 2) % 5,
                "x": one,
                "y": None if missing[one] else float(values[one]),
                "at": 1_700_000_000 * SECOND + step * 2 * SECOND + one % 7,
            }
            for one in range(SERIES)
        ]
    return rows


def _span(hub: Hub) -> list[tuple[int, int]]:
    """Series and times of the rows of a span of seconds, as the archive has them."""
    bounds = [
        f"TIMESTAMP '{dt.datetime.fromtimestamp(BEGIN + second, dt.UTC):%F %T}.{part}'"
        for second, part in ((0, "0"), (4, "999999"))
    ]
    read = hub.register(f"SELECT x, at FROM s BEGIN {bounds[0]} END {bounds[1]}", "span")
    hub.catch_up()
    table = read.invoke()
    read.drop()
    return sorted(zip(table["x"].to_pylist(), table["at"].cast(pa.int64()).to_pylist(), strict=True))


def test_every_statistic_of_every_series_is_as_the_reference_has_it_after_a_restart_too(
    tmp_path: Path,
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    rows = readings(1, 6)
    files = [rows[low : low + 2 * SERIES] for low in range(0, len(rows), 2 * SERIES)]
    (tmp_path / "names").mkdir()
    put(tmp_path / "names", 0, [])
    for number, file in enumerate(files):
        put(source, number, file)
        with Hub(tmp_path / "home", LocalExecutor(), tasks=2) as hub:
            if not number:
                stream = script(source, {}, {"maxFilesPerTrigger": "1"}, 0).split(";")[0]
                hub.execute(stream)
                hub.register_many(QUERIES)
            hub.catch_up()
            if number + 1 < len(files):
                continue
            answered = answers(hub, hub.run_once())
            assert _span(hub) == sorted(
                (row["x"], row["at"]) for row in rows if BEGIN <= row["at"] // SECOND <= BEGIN + 4
            )
            for name in QUERIES:
                query = hub.operator_and_query(name)[1]
                meant = expected(query, files)
                assert len(answered[name]) == len(meant) > 3 * SERIES
                assert comparable(answered[name]) == comparable(meant), name
