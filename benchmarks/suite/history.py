"""Histories of long-lived homes: files that the history of one query among two hundred opens, its time, and the files of the home,
after 100 to 4,200 epochs; and what the merging of runs costs the epochs.

Two homes in one process without Spark, which differ only in that one merges runs. Both get ten rows a second in turn; every query
counts by its own condition in windows of a second, so each epoch has a result of every query. A history is read by processes
that have read nothing, of each home in turn. Bytes are those of the files that it opens, of which it reads its query's sections.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from benchmarks import folders
from benchmarks.charts import Curve, Curves, Grid
from benchmarks.fresh_processes import in_each
from benchmarks.report import Report
from benchmarks.suite.standing import Clocked, script
from benchmarks.thresholds import Ratio
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home.home import Home
from headrace.runtime.hub.hub import Hub
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.results.merging import Merging
from headrace.runtime.results.result_log import retained_results
from headrace.store.files.filesystem import LocalStore
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import ListFiles

QUERIES: Final = 200
"""All have a result in each epoch: with a thousand the epochs of both homes take longest."""
EPOCHS: Final = (100, 1_000, 4_000, 4_200)
"""The last is after the first merge of 4,096."""
FEW: Final = (20, (100, 200))
"""Queries and epochs of a dry run."""
_READINGS: Final = 3


@dataclass(slots=True)
class Counted(Merging):
    """Merging that counts the bytes which each epoch's manifest took in."""

    bytes: list[int] = field(default_factory=list)

    def settled(self, planned: Manifest, files: ListFiles) -> Manifest:
        """As merging settles."""
        self.bytes.append(0 if self._is_busy else sum(merged.bytes for merged in self.written))
        return super(Counted, self).settled(planned, files)


class Unmerged(Merging):
    """No merging."""

    def look(self, manifest: Manifest, plan: EpochPlan, *, in_thread: bool) -> None:
        """Find nothing due."""
        del manifest, plan, in_thread


@dataclass(slots=True)
class Kept:
    """A home, and what its epochs took in milliseconds."""

    way: str
    path: Path
    clocked: Clocked
    milliseconds: list[float] = field(default_factory=list)


@contextmanager
def files_opened() -> Iterator[dict[str, int]]:
    """Counts the files that are opened, and their bytes."""
    counts = {"files": 0, "bytes": 0}
    read, mapped = LocalStore.read, LocalStore.map

    def counting_read(self: LocalStore, name: str) -> bytes:
        data = read(self, name)
        counts["files"] += 1
        counts["bytes"] += len(data)
        return data

    def counting_map(self: LocalStore, name: str) -> Any:
        buffer = mapped(self, name)
        counts["files"] += 1
        counts["bytes"] += buffer.size
        return buffer

    LocalStore.read, LocalStore.map = counting_read, counting_map  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        LocalStore.read, LocalStore.map = read, mapped  # type: ignore[method-assign]


def read_history(path: str, query: str) -> tuple[float, int, dict[str, int]]:
    """Milliseconds of a history in a process that has read nothing of the home, its rows, and what it opened."""
    home = Home.at(Path(path))
    operator = home.catalog.require_query(query).operator_id
    with files_opened() as counts:
        started = time.perf_counter()
        parts = retained_results(home, operator)
        rows = sum(batch.num_rows for part in parts for batch in part.batches())
        return (time.perf_counter() - started) * 1000, rows, counts


def measured(kept: Mapping[str, Kept], epochs: int) -> Iterator[dict[str, Any]]:
    """A row of the table for each home."""
    for home in kept.values():
        housekeeping = home.clocked.hub.loop.engine.housekeeping
        housekeeping.readers = -1
        housekeeping.collect_retired()
    read: dict[str, list[tuple[float, int, dict[str, int]]]] = {way: [] for way in kept}
    for _ in range(_READINGS):
        for way, home in kept.items():
            read[way] += in_each(1, read_history, str(home.path), "q7")
    if len({rows for of_way in read.values() for _, rows, _ in of_way}) != 1:
        raise AssertionError(f"histories of the homes differ: {read}")
    for way, home in kept.items():
        _, rows, counts = read[way][0]
        yield {
            "runs": way,
            "epochs": epochs,
            "rows": rows,
            "files opened": counts["files"],
            "MB of them": round(counts["bytes"] / 1e6, 1),
            "files of results": len(list((home.path / "results").iterdir())),
            "files in the home": sum(1 for path in home.path.rglob("*") if path.is_file()),
            "history ms": round(median(milliseconds for milliseconds, _, _ in read[way]), 1),
        }


def history(rows: int, rounds: int) -> Report:
    """Epochs of both homes in turn; `rounds` has no effect, and few `rows` make a dry run."""
    del rounds
    queries, wanted = (QUERIES, EPOCHS) if rows > 100_000 else FEW
    texts = [
        f"SELECT COUNT(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND] WHERE x > -{number + 1}"
        for number in range(queries)
    ]
    table: list[dict[str, Any]] = []
    with ExitStack() as opened:
        kept: dict[str, Kept] = {}
        for way, kind in (("merged", Counted), ("not merged", Unmerged)):
            path = folders.fresh(f"history-{way.replace(' ', '-')}") / "home"
            hub = opened.enter_context(Hub(path, LocalExecutor(), tasks=1))
            hub.execute(script(texts))
            hub.loop.engine.merging = kind(hub.home)
            opened.enter_context(hub.loop.engine.housekeeping.in_background())
            kept[way] = Kept(way, path, Clocked(hub))
        for epoch in range(1, wanted[-1] + 1):
            for home in list(kept.values())[:: 1 if epoch % 2 else -1]:
                home.clocked.push(10, "s")
                home.milliseconds.append(home.clocked.settle())
            if epoch in wanted:
                for row in measured(kept, epoch):
                    table.append(row)
                    print(f"  {row}", flush=True)
        merging = kept["merged"].clocked.hub.loop.engine.merging
        assert isinstance(merging, Counted)
        return _report(table, kept, merging.bytes, wanted)


def _report(
    table: list[dict[str, Any]], kept: Mapping[str, Kept], merged: list[int], wanted: tuple[int, ...]
) -> Report:
    late = {way: home.milliseconds[len(home.milliseconds) // 4 :] for way, home in kept.items()}
    at_end = {row["runs"]: row for row in table if row["epochs"] == wanted[-1]}
    ours, theirs = at_end["merged"], at_end["not merged"]
    tail = {way: quantiles(times, n=100)[98] for way, times in late.items()}
    ratios = [
        Ratio(
            f"files that a history of {wanted[-1]:,} epochs opens, merged to not merged",
            ours["files opened"] / theirs["files opened"],
            0.1,
            True,
        ),
        Ratio(
            "time of that history, merged to not merged", ours["history ms"] / theirs["history ms"], 0.2, True
        ),
        Ratio(
            "files of results in the home, merged to not merged",
            ours["files of results"] / theirs["files of results"],
            0.1,
            True,
        ),
        Ratio(
            "median of an epoch, merged to not merged",
            median(late["merged"]) / median(late["not merged"]),
            1.1,
            True,
        ),
        Ratio("p99 of an epoch, merged to not merged", tail["merged"] / tail["not merged"], 1.5, True),
    ]
    notes = [
        " ".join(str(__doc__).split()),
        (
            f"Epochs took {median(late['merged']):.1f} ms with merging and {median(late['not merged']):.1f} ms without (median), "
            f"p99 {tail['merged']:.1f} and {tail['not merged']:.1f} ms. A manifest took in at most {max(merged) / 1e6:.1f} MB of merged runs, "
            f"all of them {sum(merged) / 1e6:.1f} MB."
        ),
    ]
    charts = [
        Curves(
            what,
            ("epochs", unit),
            [
                Curve(way, wanted, [row[column] for row in table if row["runs"] == way], color)
                for way, color in (("merged", "ours"), ("not merged", "yardstick"))
            ],
            (True, True),
        )
        for what, column, unit in (
            ("Files that a history opens", "files opened", "files"),
            ("A history of one query", "history ms", "ms"),
        )
    ]
    return Report("history", "History", table, ratios, (), "ms", notes, picture=Grid("History", charts))
