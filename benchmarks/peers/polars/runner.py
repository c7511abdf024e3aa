"""Polars over the Parquet files as one batch, with its streaming engine: rows into panes of one slide in one pass, panes into windows.

A yardstick: no state, no commits, no windows that close.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.protocol import RANGE_SECONDS, Request, answer, cores, one_row, request

os.environ.setdefault("POLARS_MAX_THREADS", str(cores()))

import polars as pl


def windows(folder: Path, slide: int) -> pl.LazyFrame:
    """count, sum and max by window and key."""
    width = slide * 1_000_000
    panes = (
        pl.scan_parquet(folder / "*.parquet")
        .group_by((pl.col("at").dt.epoch("us") // width).alias("pane"), "key")
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("value").sum().alias("sum"),
            pl.col("value").max().alias("max"),
        )
    )
    held = pl.LazyFrame({"later": range(1, RANGE_SECONDS // slide + 1)})
    return (
        panes.join(held, how="cross")
        .group_by(((pl.col("pane") + pl.col("later")) * width).alias("window_end"), "key")
        .agg(pl.col("count").sum(), pl.col("sum").sum(), pl.col("max").max())
    )


def run(asked: Request, folder: Path, output: Path) -> float:
    output.mkdir(exist_ok=True)
    started = time.time()
    windows(folder, asked.slide_seconds).sink_parquet(output / "answer.parquet", compression="lz4")
    return time.time() - started


def main() -> None:
    asked = request()
    begun = time.time()
    run(asked, one_row(asked), asked.output.parent / "warm-up")
    startup = time.time() - begun
    answer(asked.rows, run(asked, asked.folder, asked.output), startup)


if __name__ == "__main__":
    main()
