"""A stream of files, a home without a JVM, and every answer as plain values: the base of tests of whole epochs."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.algebra.query import Query
from headrace.reference.derived import with_derived
from headrace.reference.evaluate import changes, stream_answer, windows_answer
from headrace.reference.history import History, record
from headrace.reference.relational import Rejects
from headrace.runtime.epoch.executor import Executor, LocalExecutor
from headrace.runtime.epoch.supervisor import Retries
from headrace.runtime.hub.hub import Hub
from headrace.runtime.introspection.status import failed
from headrace.runtime.results import result_log
from headrace.time import SECOND
from tests.laws.comparing import sort_key, within_rounding
from tests.laws.driving import plain

NAMES = (
    {"id": 0, "name": "none"},
    {"id": 1, "name": "one"},
    {"id": 1, "name": "uno"},
    {"id": 3, "name": None},
)

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("g", pa.int32()),
        ("x", pa.int64()),
        ("y", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)

QUERIES = {
    "tumble": "SELECT k, COUNT(*) AS n, SUM(x) AS total, MIN(y) AS low, MAX(y) AS top, AVG(y) AS mean"
    " FROM s [RANGE TUMBLING 10 SECONDS] GROUP BY k",
    "slide": "SELECT g, COUNT(*) AS n, SUM(y) AS total FROM s [RANGE 10 SECONDS SLIDE 3 SECONDS] WHERE x > 0 GROUP BY g",
    "distinct": "SELECT COUNT(DISTINCT k) AS ks FROM s [RANGE 20 SECONDS SLIDE 5 SECONDS]",
    "landmark": "SELECT k, MAX(x) AS top FROM s [LANDMARK SLIDE 7 SECONDS] GROUP BY k",
    "best": "SELECT k, SUM(x) AS total FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k"
    " ORDER BY total DESC, k LIMIT 2",
    "whole": "SELECT * FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] WHERE g = 1",
    "rows": "SELECT COUNT(*) AS n, SUM(x) AS total FROM s [ROWS 5 SLIDE 3]",
    "arrived": "SELECT k, COUNT(*) AS n, SUM(x) AS total FROM s [ROWS 4 SLIDE 2 WATTR row_num PA k] GROUP BY k",
    "ends": "SELECT g, COUNT(*) AS n, MIN(y) AS low FROM s [RANGE 10 SECONDS SLIDE 2 ROWS PA k] GROUP BY g",
    "frames": "SELECT COUNT(*) AS n, SUM(y) AS total FROM s [PARTITION BY g DELTA 4 ON y]",
    "visits": "SELECT g, COUNT(*) AS n, SUM(y) AS total FROM s GROUP BY session_window(at, '2 seconds'), g",
    "parts": "SELECT k, MAX(y) AS top FROM s [PARTITION BY k ROWS 3] GROUP BY k",
    "now": "SELECT k, COUNT(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY k",
    "ever": "SELECT COUNT(*) AS n, SUM(x) AS total FROM s",
    "some": "SELECT k, x, y FROM s WHERE x > 3",
    "named": "SELECT names.name, COUNT(*) AS n FROM s [RANGE TUMBLING 5 SECONDS] JOIN names ON s.g = names.id"
    " GROUP BY names.name",
    "mended": "SELECT k, COUNT(*) AS n, SUM(x) AS total FROM s [RANGE 10 SECONDS SLIDE 3 SECONDS] GROUP BY k"
    " WITH REVISIONS",
}
"""One of every kind: panes, distinct, landmark, top-k, rows in windows, windows of rows and ending at rows, relations, streams, joins, revisions."""

SEVERAL = {
    "united": "SELECT k, COUNT(*) AS n FROM s UNION ALL s [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k",
    "met": "SELECT x.k, COUNT(*) AS n, MAX(y.x) AS top FROM s x [RANGE 4 SECONDS SLIDE 2 SECONDS],"
    " s y [RANGE 6 SECONDS SLIDE 2 SECONDS] WHERE x.k = y.k AND x.g = y.g GROUP BY x.k",
    "held": "SELECT x.k, x.x, y.n FROM s x [ROWS 3], (SELECT k, COUNT(*) AS n FROM s [RANGE 4 SECONDS] GROUP BY k) AS y"
    " WHERE x.k = y.k",
    "closed": "SELECT xt, COUNT(*) AS n, SUM(v) AS t FROM (SELECT x.at AS xt, y.x AS v FROM s x, s y WHERE x.k = y.k AND"
    " y.at BETWEEN x.at AND x.at + INTERVAL 2 SECONDS) AS p [RANGE TUMBLING ALL] GROUP BY xt",
    "of_a_side": "SELECT COUNT(*) AS n, SUM(v) AS t FROM (SELECT x.at AS xt, y.x AS v FROM s x, s y WHERE x.k = y.k AND"
    " y.at BETWEEN x.at AND x.at + INTERVAL 2 SECONDS) AS p [RANGE 4 SECONDS SLIDE 2 SECONDS WATTR xt]",
}
"""Several streams as one, and joined: their pairs are emitted an epoch later, those of relations two; groups of pairs, and windows over
the time of one side, that close by themselves.
"""

Row = dict[str, Any]


def made_rows(seed: int, count: int, *, disorder: int = 0, every: int = SECOND) -> list[Row]:
    """Rows in order of time but for a `disorder` in microseconds; sums of `y` are exact, so that cuts do not show."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, count * every, count)) // (every // 4) * (every // 4)
    at = at + rng.integers(-disorder, 1, count) if disorder else at
    return [
        {
            "k": [None, "a", "b", "c", ""][rng.integers(5)],
            "g": int(rng.integers(4)) or None,
            "x": int(rng.integers(-5, 10)),
            "y": None if rng.integers(9) == 0 else float(rng.integers(-40, 40)) / 4,
            "at": int(instant),
        }
        for instant in at
    ]


def cut(rows: Sequence[Row], *places: int) -> list[list[Row]]:
    """Rows as files."""
    return [list(rows[low:high]) for low, high in itertools.pairwise([0, *places, len(rows)])]


@dataclass
class Rig:
    """A folder with the stream's files in `in/` and the home in `home/`."""

    folder: Path
    options: Mapping[str, str] = field(default_factory=dict)
    slack: int = 0
    written: int = 0

    def __post_init__(self) -> None:
        self.source.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            pa.Table.from_pylist(list(NAMES), pa.schema([("id", pa.int32()), ("name", pa.string())])),
            self.folder / "names.parquet",
        )

    @property
    def source(self) -> Path:
        return self.folder / "in"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def drop(self, *files: Sequence[Row]) -> None:
        """Put files into the stream's folder, each whole at once."""
        for rows in files:
            put(self.source, self.written, rows)
            self.written += 1

    def script(self, queries: Mapping[str, str] = QUERIES) -> str:
        """All statements of the home."""
        return script(self.source, queries, self.options, self.slack)

    @contextmanager
    def hub(
        self,
        tasks: int = 2,
        queries: Mapping[str, str] | None = None,
        cores: int = 1,
        executor: Executor | None = None,
        waits: tuple[float, ...] = (),
    ) -> Iterator[Hub]:
        """The home, open; with `queries` also what it takes to have them; with `waits` failed epochs are tried again."""
        if executor is None:
            executor = LocalExecutor()
            executor.cores = cores
        with Hub(self.home, executor, tasks=tasks, retries=Retries(waits)) as hub:
            if queries is not None:
                hub.execute(self.script(queries))
            yield hub


def put(folder: Path, number: int, rows: Sequence[Row]) -> None:
    """One file of rows, whole at once; the stream's order is that of names."""
    table = pa.table(
        {
            name: pa.array([row[name] for row in rows], pa.int64()).cast(SCHEMA.field(name).type)
            if name == "at"
            else pa.array([row[name] for row in rows], SCHEMA.field(name).type)
            for name in SCHEMA.names
        }
    )
    temporary = folder / f".{number:06}.tmp"
    pq.write_table(table, temporary)
    os.rename(temporary, folder / f"{number:06}.parquet")  # noqa: PTH104


def script(source: Path, queries: Mapping[str, str], options: Mapping[str, str], slack: int) -> str:
    """The statements of a home over the files of a folder."""
    settings = {"path": str(source), "order": "name", **options}
    listed = ", ".join(f"{name} '{value}'" for name, value in settings.items())
    stream = f"CREATE STREAM s (k STRING, g INT, x BIGINT, y DOUBLE, at TIMESTAMP) USING parquet OPTIONS ({listed})"
    stream += f" TIMESTAMP BY at SLACK INTERVAL {slack / SECOND} SECONDS" if slack else " TIMESTAMP BY at"
    names = f"CREATE RELATION names (id INT, name STRING) USING parquet OPTIONS (path '{source.parent}/names.parquet')"
    return (
        ";\n".join([stream, names, *(f"CREATE QUERY {name} AS {text}" for name, text in queries.items())])
        + ";"
    )


def answer(hub: Hub, name: str, closing: Mapping[str, pa.Table] | None = None) -> list[Any]:
    """All a query has answered (what holds of it, with revisions), in a canonical order; with `closing` as if the streams ended here.

    What `run_once` has given as `closing` shows what users see; instants are compared too, so it is asked for once more.
    """
    return _answer(hub, name, {} if closing is None else hub.finish())


def _answer(hub: Hub, name: str, closing: Mapping[str, pa.Table]) -> list[Any]:
    assert name not in failed(hub), f"{name}: {failed(hub)[name]}"
    operator, query = hub.operator_and_query(name)
    tables = [part.table for part in result_log.epochs_of(hub.home, hub.home.latest(), operator.id)]
    if name in closing:
        tables.append(closing[name])
    if query.retracts_windows and tables:
        tables = [result_log.net_rows(pa.concat_tables(tables))]
    rows = [row for table in tables for row in plain(table, query, changes=query.emission == "relation")]
    return canonical(rows)


def answers(hub: Hub, closing: Mapping[str, pa.Table] | None = None) -> dict[str, list[Any]]:
    """The same for every query there is."""
    ending = {} if closing is None else hub.finish()
    return {q.definition.name: _answer(hub, q.definition.name, ending) for q in hub.catalog.queries.values()}


def canonical(rows: Sequence[Any]) -> list[Any]:
    """Rows in an order that depends on their values alone; doubles equal those within 1e-9 of them."""
    return [within_rounding(row) for row in sorted(rows, key=sort_key)]


def expected(query: Query, epochs: Sequence[Sequence[Row]], slack: int = 0) -> list[Any]:
    """The reference's answer over the same epochs, as if the stream ended after them. Rows without a time are refused."""
    epochs = [[row for row in epoch if row["at"] is not None] for epoch in epochs]
    rejects = Rejects()
    recorded = History({"s": record(epochs, "at", slack)}, {"names": NAMES})
    history = with_derived(query, recorded, final=True, rejects=rejects)
    punctuation = history.punctuation(query)
    if query.emission == "windows":
        return canonical(windows_answer(query, history, punctuation, final=True, rejects=rejects))
    if query.emission == "stream":
        return canonical(stream_answer(query, history, punctuation, final=True, rejects=rejects))
    now = history.now(query)
    return canonical(changes(query, history, punctuation if now is None else now + 1, rejects=rejects))


def assert_as_the_reference(hub: Hub, epochs: Sequence[Sequence[Row]], slack: int = 0) -> None:
    """Every query answers as the reference does, all rows read and the streams ended here."""
    answered = answers(hub, hub.run_once())
    for name, rows in answered.items():
        assert rows == expected(hub.operator_and_query(name)[1], epochs, slack), name


def rows_late_rejected(hub: Hub) -> tuple[int, int, int]:
    """How many rows of the stream there were, how many of them late, and how many rejected."""
    known = hub.status()["streams"]["s"]
    return known["rows"], known["late"], known["rejected"]


def faults(hub_or_home: Hub | Path) -> list[str]:
    """What `headrace check` would call a fault, and how much garbage it would find."""
    from headrace.runtime.hub.check import check
    from headrace.time import FOREVER

    path = hub_or_home.path if isinstance(hub_or_home, Hub) else hub_or_home
    lines = check(path, at=FOREVER).lines
    return [line for line in lines if line.startswith("FAULT") or "the next start collects" in line]


def faults_once_tidy(hub: Hub) -> list[str]:
    """The same after the garbage is collected, as if the grace had passed."""
    hub.loop.engine.housekeeping.grace = -1
    hub.loop.engine.collect()
    return faults(hub)
