"""Streams of which a share of rows is shed by hand: what is archived, what the query has seen, and its windows before and after repair."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from headrace.archive.blocks import Blocks, hashes_of, seed_of
from headrace.archive.runs import POSITION, RunWriter
from headrace.runtime.hub.hub import Hub
from headrace.schema import STAMP

START: Final = 1_700_000_000
BATCHES, BATCH_SECONDS, ROWS_OF_A_SECOND = 12, 5, 400
QUERY: Final = "SELECT window_end, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE TUMBLING 5 SECONDS]"
Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shed:
    """One share: rows pushed and archived, whether these are the same, rows that the query saw, and those with a hash below the share; by
    window the relative error of the estimate, what its interval allows, and the error after repair.
    """

    share: float
    pushed: int
    archived: int
    is_whole: bool
    seen: int
    below: int
    before: Ints
    allowed: Ints
    after: Ints
    windows: int
    repaired: int


def batch(number: int) -> pa.Table:
    """Rows of five seconds."""
    draw, rows = np.random.default_rng(number), BATCH_SECONDS * ROWS_OF_A_SECOND
    at = (START + number * BATCH_SECONDS) * 1_000_000 + np.arange(rows) * (1_000_000 // ROWS_OF_A_SECOND)
    return pa.table({"at": pa.array(at).cast(STAMP), "v": draw.integers(0, 1000, rows)})


def shed(folder: Path, share: float) -> Shed:
    """Push all rows while a share of them is read, then let all return. The last window stays open."""
    with hr.open(folder, local=True) as hub:
        hub.execute(
            "CREATE STREAM s (at TIMESTAMP, v BIGINT) USING push OPTIONS (blocks '16') TIMESTAMP BY at"
        )
        hub.execute(f"CREATE QUERY q AS {QUERY} WITH SHEDDING (repair)")
        hub.execute(f"ALTER STREAM s SET (keep '{share}')")
        pushed = [batch(number) for number in range(BATCHES)]
        for rows in pushed:
            hub.push("s", rows)
            hub.catch_up()
        estimates = _windows(hub)
        hub.execute("ALTER STREAM s SET (keep '1')")
        hub.catch_up()
        exact, archived = _windows(hub), _archived(hub)
        repaired = hub.status()["repairs"].get("q", {}).get("repaired", 0)
    whole = pa.concat_tables(pushed)
    truth = np.array(
        [[rows.num_rows, rows["v"].to_numpy().sum()] for rows in pushed[: len(estimates)]], float
    )
    below = hashes_of(archived[POSITION].to_numpy(), seed_of("s")) >> np.uint64(11) < share * 2.0**53
    closed = archived["at"].cast(pa.int64()).to_numpy() < (START + BATCH_SECONDS * len(truth)) * 1_000_000
    return Shed(
        share,
        whole.num_rows,
        archived.num_rows,
        archived.select(["at", "v"]).equals(whole),
        round(float((estimates[:, 0] * estimates[:, 3]).sum())),
        int((below & closed).sum()),
        np.abs(estimates[:, 1] / truth[:, 1] - 1),
        estimates[:, 2] / truth[:, 1],
        np.abs(exact[: len(truth), 1] - truth[:, 1]) + np.abs(exact[: len(truth), 0] - truth[:, 0]),
        len(truth),
        repaired,
    )


def _windows(hub: Hub) -> npt.NDArray[np.float64]:
    """Of each window that is emitted and not retracted: the count, the sum, its error, and the share of rows it is from."""
    held: Counter[tuple[Any, ...]] = Counter()
    for row in hub.query("q").history().to_pylist():
        held[tuple(row[name] for name in ("window_end", "n", "total", "total_error", "kept"))] += row[
            "__change"
        ]
    return np.array([window[1:] for window in sorted(held) if held[window]])


def _archived(hub: Hub) -> pa.Table:
    """The archive in the order of its positions."""
    manifest = hub.home.latest()
    entries = [entry for _, entry in hub.home.list_of(manifest, "archive:s").iterate(hub.home.store.read, 0)]
    names = dict.fromkeys(name for entry in entries for name in entry["files"])
    tables = [pq.read_table(pa.BufferReader(hub.home.store.map(name))) for name in names]
    return pa.concat_tables(table.select(["at", "v", POSITION]) for table in tables).sort_by(POSITION)


def same_blocks(cuts: tuple[int, ...]) -> bool:
    """Whether a run of the same rows is the same file, byte for byte, however its rows were cut."""
    rows = pa.concat_tables(batch(number) for number in range(BATCHES))
    at, position = rows["at"].cast(pa.int64()).to_numpy(), np.arange(rows.num_rows)
    files = []
    for cut in cuts:
        writer = RunWriter(rows.schema, "at", Blocks(seed_of("s"), 16))
        for start in range(0, rows.num_rows, cut):
            part = slice(start, start + cut)
            columns = [column.combine_chunks() for column in rows.slice(start, cut).columns]
            writer.add(columns, at[part], position[part], None)
        (data,) = writer.finish()
        files.append(data.to_pybytes())
    return len(set(files)) == 1
