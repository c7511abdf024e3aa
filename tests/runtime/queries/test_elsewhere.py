"""On a machine of another time zone, with a session of its own, and for other programs that read the archive: all as documented."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pandas as pd
import pytest

PROGRAM = textwrap.dedent(
    """
    import json, sys, time
    import headrace as hr

    folder = sys.argv[1]
    if __name__ == "__main__":
        with hr.open(f"{folder}/home") as hub:
            hub.execute(f\"\"\"
                CREATE STREAM cars (k STRING, v INT, at TIMESTAMP)
                  USING csv OPTIONS (path '{folder}/cars.csv', header 'true') TIMESTAMP BY at;
                CREATE QUERY busy AS SELECT k, hour(at) AS h, COUNT(*) AS n
                  FROM cars [RANGE TUMBLING 1 HOUR] GROUP BY k, hour(at)\"\"\")
            q = hub.query("busy")
            hub.run_once(seal=True)
            frame = q.dataframe()
            archive = hub.archive("cars").selectExpr("k", "v", "unix_micros(at) AS at")
            print(json.dumps({
                "zone": time.tzname[0],
                "history": q.history().to_pylist(),
                "frame": [row.asDict() for row in frame.collect()],
                "archive": [row.asDict() for row in archive.orderBy("v").collect()],
            }))
    """
)
CARS = [
    ("a", 1, datetime(2024, 3, 10, 1, 59, 59, tzinfo=UTC)),
    ("b", 2, datetime(2024, 3, 10, 2, 30, tzinfo=UTC)),  # does not exist in New York
    ("a", 3, datetime(2024, 3, 10, 2, 45, 0, 5, tzinfo=UTC)),
    (None, 4, datetime(2024, 11, 3, 1, 30, tzinfo=UTC)),  # is there twice
]


@pytest.mark.spark
def test_an_own_session_in_new_york_answers_in_utc_and_its_archive_is_plain_parquet(tmp_path: Path) -> None:
    lines = [f"{k or ''},{v},{at.replace(tzinfo=None).isoformat(sep=' ')}" for k, v, at in CARS]
    (tmp_path / "cars.csv").write_text("k,v,at\n" + "\n".join(lines) + "\n")
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, "TZ": "America/New_York"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    report = json.loads(ran.stdout.splitlines()[-1])
    assert report["zone"] == "EST"
    assert report["history"] == [{"k": k, "h": at.hour, "n": 1} for k, _, at in CARS[:1]] + [
        {"k": "a", "h": 2, "n": 1},
        {"k": "b", "h": 2, "n": 1},
        {"k": None, "h": 1, "n": 1},
    ]
    by_name = sorted(report["frame"], key=repr)
    assert by_name == sorted(report["history"], key=repr)
    meant = [{"k": k, "v": v, "at": int(at.timestamp()) * 10**6 + at.microsecond} for k, v, at in CARS]
    assert report["archive"] == meant
    runs = sorted((tmp_path / "home" / "archive" / "cars").rglob("*.parquet"))
    pandas = pd.concat(pd.read_parquet(run) for run in runs).sort_values("v")
    assert [
        (k, v, at.to_pydatetime()) for k, v, at in zip(pandas.k, pandas.v, pandas["at"], strict=True)
    ] == CARS
    rows = duckdb.sql(
        f"SELECT k, v, epoch_us(\"at\") FROM read_parquet('{tmp_path}/home/archive/cars/**/*.parquet') ORDER BY v"
    )
    assert rows.fetchall() == [tuple(row.values()) for row in meant]
