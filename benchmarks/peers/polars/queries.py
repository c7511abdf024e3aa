"""Polars with many queries over the same Parquet files in one batch, a yardstick. Prints one line of JSON.

One pass with a filtered count and sum for each query by panes of 10 s; those of a window are added up after it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

from benchmarks.protocol import cores

os.environ.setdefault("POLARS_MAX_THREADS", str(cores()))

import polars as pl

SLIDE_US, PANES = 10_000_000, 6
Predicate = list[tuple[str, int, int]]


def panes(source: Path, predicates: list[Predicate]) -> pl.DataFrame:
    """A row for each pane and key, with a count and a sum for each query."""
    aggregates = []
    for number, factors in enumerate(predicates):
        holds = pl.all_horizontal(pl.col(name).is_between(low, high) for name, low, high in factors)
        aggregates += [
            holds.sum().cast(pl.Int64).alias(f"n{number}"),
            pl.col("v").filter(holds).sum().alias(f"v{number}"),
        ]
    rows = pl.scan_parquet(source / "*.parquet")
    pane = (pl.col("at").dt.epoch("us") // SLIDE_US).alias("pane")
    return rows.group_by(pane, "key").agg(aggregates).collect(engine="streaming")


def windows(panes: pl.DataFrame, queries: int) -> pl.DataFrame:
    """The answers: a row for each query, window and key."""
    long = pl.concat(
        [
            panes.select("pane", "key", pl.lit(number).alias("q"), n=f"n{number}", total=f"v{number}")
            for number in range(queries)
        ]
    ).filter(pl.col("n") > 0)
    held = pl.DataFrame({"later": range(1, PANES + 1)})
    window_end = ((pl.col("pane") + pl.col("later")) * SLIDE_US).alias("window_end")
    return long.join(held, how="cross").group_by("q", window_end, "key").agg(pl.col("n", "total").sum())


def run(source: Path, output: Path, predicates: list[Predicate]) -> float:
    """Seconds from the first row read to the written answer."""
    output.mkdir(parents=True)
    started = time.time()
    windows(panes(source, predicates), len(predicates)).write_parquet(
        output / "part.parquet", compression="lz4"
    )
    return time.time() - started


def main() -> None:
    source, output = Path(sys.argv[2]), Path(sys.argv[3])
    predicates: list[Predicate] = json.loads(Path(sys.argv[4]).read_text(encoding="utf-8"))
    last = output / "last"
    last.mkdir(parents=True)
    shutil.copy(max(source.iterdir()), last)
    run(last, output / "warm-up", predicates)
    print(json.dumps({"seconds": run(source, output / "answer" / "all", predicates)}), flush=True)


if __name__ == "__main__":
    main()
