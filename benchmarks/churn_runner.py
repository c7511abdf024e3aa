"""Headrace: standing queries of which a fifth are dropped and replaced every minute. Prints one line of JSON.

Epochs of one slide of rows follow one another without a pause. In every other interval queries are dropped and
registered meanwhile, at 20 % a minute of all that are registered, the oldest first; a few stay from the beginning to the
end, and their answers are written. So are those of some new queries, for the windows that began after they were
registered. Times are of registrations and epochs, not of making rows.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from benchmarks import queries_data as data
from benchmarks.memory import tree_pss_kb
from benchmarks.queries_memory_runner import slide
from benchmarks.queries_runner import create

SHARE_A_MINUTE = 0.2
STAYING = 20
NEWCOMERS = 10
DISTINCT = 4
"""Predicates repeat after so many times the number of registered queries."""


@dataclass(slots=True)
class _Crowd:
    """The registered queries: those that stay, and those that are dropped in time, by number, oldest first."""

    queries: int
    going: deque[int] = field(init=False)
    next: int = field(init=False)
    owed: float = 0.0
    """Changes that are due, with the fraction of one that is not yet."""
    changes: int = 0

    def __post_init__(self) -> None:
        self.going, self.next = deque(range(STAYING, self.queries)), self.queries

    def due(self, seconds: float) -> str:
        """The script that makes up for so many seconds of churn."""
        self.owed += seconds / 60 * SHARE_A_MINUTE * self.queries
        count, said = int(self.owed), []
        self.owed -= count
        for _ in range(count):
            said.append(f"DROP QUERY q{self.going.popleft()};")
            said.append(create(self.next, predicate_of(self.next, self.queries)))
            self.going.append(self.next)
            self.next += 1
        self.changes += count
        return "".join(said)


@cache
def _predicates(count: int) -> list[data.Predicate]:
    return data.predicates(count)


def predicate_of(number: int, queries: int) -> data.Predicate:
    """The predicate of query `number` where `queries` are registered; predicates of new queries repeat after a while."""
    known = _predicates(DISTINCT * queries)
    return known[number % len(known)]


def main() -> None:
    output, queries = Path(sys.argv[1]), int(sys.argv[2])
    seconds, stretch = float(sys.argv[3]), float(sys.argv[4])
    folder = output / "stream"
    folder.mkdir(parents=True)
    columns = ", ".join(f"{name} INT" for name in data.ATTRIBUTES)
    epochs: list[tuple[bool, float, float]] = []
    crowd, mb = _Crowd(queries), []
    with hr.open(output / "home") as hub:
        hub.execute(f"""CREATE STREAM s (at TIMESTAMP, key INT, v BIGINT, {columns})
            USING parquet OPTIONS (path '{folder}', archive 'none', order 'name') TIMESTAMP BY at;""")
        hub.execute("".join(create(number, predicate_of(number, queries)) for number in range(queries)))
        started = last = time.perf_counter()
        number = 0
        while time.perf_counter() - started < seconds:
            pq.write_table(slide(number), output / "next")
            (output / "next").rename(folder / f"part-{number:05d}.parquet")
            begun = time.perf_counter()
            churns = int((begun - started) / stretch) % 2 == 1
            script = crowd.due(begun - last) if churns else ""
            last = begun
            if script:
                hub.execute(script)
            changed = time.perf_counter()
            hub.catch_up()
            epochs.append((churns, changed - begun, time.perf_counter() - changed))
            if number % 10 == 0:
                mb.append(round(tree_pss_kb(os.getpid()) / 1024))
            number += 1
        new_queries = [query for query in list(crowd.going) if query >= queries][:NEWCOMERS]
        since = {}
        for query in (*range(STAYING), *new_queries):
            table = hub.query(f"q{query}").history()
            ends = table["window_end"].cast(pa.int64())
            pq.write_table(table.set_column(0, "window_end", ends), output / f"q{query}.parquet")
            shown = hub.execute(f"SHOW QUERIES LIKE 'q{query}';")[0].table
            assert shown is not None
            since[query] = shown["complete_since"][0].as_py()
        standing = len(hub.catalog.queries)
    print(
        json.dumps(
            {
                "epochs": epochs,
                "changes": crowd.changes,
                "mb": mb,
                "standing": standing,
                "complete_since": {str(query): at for query, at in since.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
