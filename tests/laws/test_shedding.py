"""Law 9: none shed, exact; some, the answer reports how much and how wrong. Estimates are those of the reference over recorded weights.

The reference gets each row's weight from a hash of its own, in plain integers; positions and shares are the test's.
"""

from __future__ import annotations

import math
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.query import Query
from headrace.archive.runs import POSITION
from headrace.catalog.definitions import StreamDefinition
from headrace.language.binder.query_binder import bind_query
from headrace.operators.panes.adaptive_panes import EVERY_ROW
from headrace.planner.lowering.lower import lower
from headrace.reference.evaluate import windows_answer
from headrace.reference.history import History, RecordedStream, StreamRow, record
from headrace.reference.relational import Rejects
from headrace.runtime.hub.hub import Hub
from headrace.runtime.tasks.scan.shed_rows import shown_of
from headrace.time import SECOND
from tests.examples import examples
from tests.language.catalog import Catalog
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.driving import batch, plain
from tests.operators.local_driver import drive
from tests.runtime.epoch.test_supervisor import Failing
from tests.runtime.rig import NAMES, Rig, Row, answer, cut, made_rows

KEEPS = (1.0, 1.0, 0.5, 0.25, 0.3, 0.9)
SHEDDING = " WITH SHEDDING"


# ---------------------------------------------------------------------------------------------- what is kept, by hand


def hashed(position: int, seed: int) -> int:
    """Splitmix64 of the position, the stream's seed times the golden ratio added; in integers."""
    golden, whole = 0x9E3779B97F4A7C15, 2**64
    mixed = (position + seed * golden + golden) % whole
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) % whole
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) % whole
    return mixed ^ (mixed >> 31)


def weight(position: int, stream: str, keep: float) -> float:
    """How many rows a row represents; 0 when it is not kept."""
    return 1 / keep if hashed(position, zlib.crc32(stream.lower().encode())) < keep * 2**64 else 0.0


def weighed(
    stream: RecordedStream, keeps: Sequence[float], place: Callable[[StreamRow], int]
) -> RecordedStream:
    """The rows at their places, with the weights by the shares of their epochs."""
    rows = (replace(row, position=place(row)) for row in stream.rows)
    return replace(
        stream,
        rows=tuple(replace(row, weight=weight(row.position, "s", keeps[row.epoch - 1])) for row in rows),
    )


# --------------------------------------------------------------------------------------------------------- comparing


def alike(answered: Sequence[Any], expected: Sequence[Any], query: Query, scale: float) -> None:
    """The same rows; doubles within rounding of values as large as `scale`, the error of a mean within 1e-7 of them."""
    means = {f"{name}_error" for name in ("mean", "mid")}
    exact = [name for name in query.schema.names if not query.schema.field(name).type.is_fractional]

    def by_place(rows: Sequence[Any]) -> list[Any]:
        return sorted(rows, key=lambda pair: repr((pair[0], [pair[1][name] for name in exact])))

    assert len(answered) == len(expected), (answered, expected)
    for (at, one), (when, other) in zip(by_place(answered), by_place(expected), strict=True):
        assert at == when
        for name in query.schema.names:
            loose = 1e-7 * scale if name in means else 1e-9 * scale
            assert close(one[name], other[name], loose), (name, one, other)


def close(one: Any, other: Any, loose: float) -> bool:
    if isinstance(one, float) and isinstance(other, float) and not math.isnan(one):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=loose)
    return repr(one) == repr(other)


# ----------------------------------------------------------------------------------------------- every operator's cut

AGGREGATES = (
    "COUNT(*) AS n",
    "COUNT(x) AS xs",
    "COUNT(*) FILTER (WHERE x > 3) AS many",
    "COUNT_IF(y < 1) AS small",
    "SUM(x) AS total",
    "SUM(y) FILTER (WHERE g = 1) AS part",
    "AVG(x) AS mean",
    "AVG(y) FILTER (WHERE g <> 2) AS mid",
    "MIN(y) AS low",
    "MAX(x) AS top",
)
WINDOWS = (
    "[RANGE TUMBLING 5 SECONDS]",
    "[RANGE 9 SECONDS SLIDE 4 SECONDS]",
    "[RANGE 3 SECONDS SLIDE 10 SECONDS]",
    "[LANDMARK SLIDE 7 SECONDS]",
)
FINITE = "WHERE (y IS NULL OR abs(y) < 1e7D)"


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Queries that may have WITH SHEDDING, without it."""
    chosen = draw(st.lists(st.sampled_from(AGGREGATES), min_size=1, max_size=4, unique=True))
    keys = draw(st.sampled_from(((), ("k",), ("g", "k"), ("x % 3 AS r",))))
    where = draw(st.sampled_from((FINITE, f"{FINITE} AND x > -5", f"{FINITE} AND k IN ('a', 'b')")))
    having = draw(st.sampled_from(("", " HAVING k > ''"))) if "k" in keys else ""
    grouped = f" GROUP BY {', '.join(key.partition(' AS ')[0] for key in keys)}" if keys else ""
    listed = ", ".join((*keys, *chosen))
    return f"SELECT {listed} FROM s {draw(st.sampled_from(WINDOWS))} {where}{grouped}{having}"


CATALOG = Catalog("")
CATALOG.streams["s"] = StreamDefinition("s", some.SCHEMA, "push", time="at")


def driven(
    query: Query,
    history: History,
    keeps: Sequence[float],
    cuts: Any,
    tasks: list[int],
    merges: Any,
    keeping: Mapping[int, int] | None = None,
) -> list:
    """What the operator answers to the rows that are kept; each split is thinned by itself, with all else that it has."""
    operator, stream = lower("q", query, "q"), history.streams["s"]
    batches = [[batch(part, some.SCHEMA) for part in parts] for parts in cuts]
    if query.shedding:
        seed = zlib.crc32(b"s")
        batches = [
            [shown_of(each, seed, keep) for each in parts] for keep, parts in zip(keeps, batches, strict=True)
        ]
    batches = [[each.only(operator.columns) for each in parts] for parts in batches]
    run = drive(
        operator,
        batches,
        stream.punctuations,
        tasks,
        final=False,
        compact_after=merges,
        keeping=keeping or {},
    )
    return plain(run.results, query)


@given(data=st.data())
def test_whatever_the_shares_and_the_cuts_estimates_and_errors_are_the_reference_s(
    data: st.DataObject,
) -> None:
    text = data.draw(texts(), "text")
    query = bind_query(text + SHEDDING, CATALOG)
    recorded = passed(data.draw(streams.recorded(), "stream"))
    keeps = [data.draw(st.sampled_from(KEEPS), "keep") for _ in recorded.punctuations]
    stream = weighed(recorded, keeps, lambda row: row.position + (row.epoch << 32))
    accepted = [
        [row for row in stream.rows if row.epoch == epoch and row.fate == "accepted"]
        for epoch in range(1, len(keeps) + 1)
    ]
    cuts = [data.draw(streams.splits(data.draw(st.permutations(rows))), "splits") for rows in accepted]
    tasks = [data.draw(st.integers(1, 3), "tasks") for _ in cuts]
    merges = data.draw(st.dictionaries(st.integers(0, 4), st.integers(1, 3), max_size=3), "compactions")
    history = History({"s": stream}, {})
    keeping = data.draw(st.dictionaries(st.integers(0, 4), st.sampled_from((0, 1, 3, EVERY_ROW))), "few rows")
    run = driven(query, history, keeps, cuts, tasks, merges, keeping)
    expected = windows_answer(query, history, history.punctuation(query))
    alike(run, expected, query, greatest(stream))


def passed(stream: RecordedStream) -> RecordedStream:
    """With one more epoch, which promises that no row follows that is in a window of those that came."""
    last = max((row.at for row in stream.rows), default=0) + 20 * SECOND
    return replace(stream, punctuations=(*stream.punctuations, last))


@given(data=st.data())
def test_where_nothing_is_shed_each_answer_is_the_exact_one_its_error_is_none_and_all_was_looked_at(
    data: st.DataObject,
) -> None:
    text = data.draw(texts(), "text")
    exact, estimate = bind_query(text, CATALOG), bind_query(text + SHEDDING, CATALOG)
    stream = passed(data.draw(streams.recorded(), "stream"))
    history = History({"s": stream}, {})
    keeps = [1.0] * len(stream.punctuations)
    cuts = [
        [[row for row in stream.rows if row.epoch == epoch and row.fate == "accepted"]]
        for epoch in range(1, len(keeps) + 1)
    ]
    tasks = [1] * len(cuts)
    plainly = driven(exact, history, keeps, cuts, tasks, {})
    run = driven(estimate, history, keeps, cuts, tasks, {})
    assert len(run) == len(plainly)
    kinds = [(field.name, field.type.is_fractional) for field in exact.schema]
    assert sorted(
        repr((at, [number(row[name], *kind) for name, *kind in kinds])) for at, row in run
    ) == sorted(repr((at, [number(row[name], *kind) for name, *kind in kinds])) for at, row in plainly)
    beside = [name for name in estimate.schema.names if name.endswith("_error")]
    assert all(row["kept"] == 1 and all(row[name] == 0 for name in beside) for _, row in run)


def number(value: Any, is_fractional: bool) -> Any:
    """A count as the double it is with an error; sums of doubles to the digits that are determined."""
    if is_fractional and value is not None and math.isfinite(value):
        return float(f"{value:.9g}") + 0.0
    return float(value) if isinstance(value, int) else value


def greatest(stream: RecordedStream) -> float:
    """The largest finite value, at least 1."""
    values = [row.values[name] for row in stream.rows for name in ("x", "y")]
    return max([1.0, *(abs(value) for value in values if value is not None and math.isfinite(value))])


# ------------------------------------------------------------------------------------------------------- whole epochs

SLACK = 2 * SECOND
ONE_FILE = {"maxFilesPerTrigger": "1"}
QUERIES = {
    "tumble": "SELECT k, COUNT(*) AS n, SUM(x) AS total, AVG(x) AS mean, MIN(y) AS low"
    " FROM s [RANGE TUMBLING 10 SECONDS] GROUP BY k",
    "slide": "SELECT COUNT(*) AS n, AVG(y) AS mean FROM s [RANGE 10 SECONDS SLIDE 3 SECONDS] WHERE x > 0",
    "member": "SELECT g, COUNT(*) FILTER (WHERE x > 2) AS n, SUM(x) AS total FROM s [LANDMARK SLIDE 7 SECONDS]"
    " WHERE g IN (SELECT id FROM names) GROUP BY g",
}


@dataclass(frozen=True)
class Life:
    """A stream's files and the share in force when each is read."""

    files: Sequence[Sequence[Row]]
    keeps: Sequence[float]

    @property
    def recorded(self) -> RecordedStream:
        """The rows at the positions that ingestion gives them: file, then row in it."""
        stream = record([list(file) for file in self.files], "at", SLACK)
        before = np.cumsum([0, *map(len, self.files)]).tolist()
        return weighed(
            stream, self.keeps, lambda row: ((row.epoch - 1) << 32) + row.position - before[row.epoch - 1]
        )

    def expected(self, query: Query) -> list[Any]:
        """The reference's answer."""
        history = History({"s": self.recorded}, {"names": NAMES})
        return windows_answer(query, history, history.punctuation(query), final=True, rejects=Rejects())


def assert_right(hub: Hub, life: Life, names: Sequence[str]) -> None:
    """Every query with its closing windows; those that shed nothing are exact."""
    closing = hub.finish()
    for name in names:
        query = hub.operator_and_query(name)[1]
        alike(answer(hub, name, closing), life.expected(query), query, 100.0)


def archived(hub: Hub) -> list[Any]:
    """Every row of the copies, in the order of ingestion."""
    listed = hub.home.list_of(hub.home.latest(), "archive:s").iterate(hub.home.store.read, 0)
    files = dict.fromkeys(name for _, entry in listed for name in entry["files"])
    tables = [pq.read_table(pa.BufferReader(hub.home.store.map(name))) for name in files]
    columns = [*some.SCHEMA.names, POSITION]
    rows = []
    for table in tables:
        at = table.column("at").cast(pa.int64())
        rows += table.set_column(table.column_names.index("at"), "at", at).select(columns).to_pylist()
    return [
        {name: row[name] for name in some.SCHEMA.names} for row in sorted(rows, key=lambda row: row[POSITION])
    ]


@examples(12)
@given(data=st.data())
def test_over_changes_restarts_and_failures_all_see_what_was_kept_when_rows_came(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 99), "seed")
    places = sorted(data.draw(st.sets(st.integers(1, 59), min_size=2, max_size=6), "cuts"))
    files = cut(made_rows(seed, 60, disorder=3 * SECOND, every=SECOND // 4), *places)
    keeps = [data.draw(st.sampled_from(KEEPS), "keep") for _ in files]
    life, halfway = Life(files, keeps), data.draw(st.integers(0, len(files)), "when the late ones come")
    blocks = data.draw(st.sampled_from(({}, {"blocks": "4"}, {"archive": "in place"})), "archive")
    texts = {name: text + SHEDDING for name, text in QUERIES.items()}
    exact = {f"exact_{name}": text for name, text in QUERIES.items()}
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder), {**ONE_FILE, "keep": f"{keeps[0]}", **blocks}, SLACK)
        with rig.hub(1, {**texts, **exact}):
            pass
        for number, file in enumerate(files):
            rig.drop(file)
            fails = Failing(data.draw(st.integers(0, 1), "failures"))
            with rig.hub(data.draw(st.integers(1, 3), "tasks"), executor=fails, waits=(0.0,)) as hub:
                hub.execute(f"ALTER STREAM s SET (keep '{keeps[number]}')")
                if number == halfway:
                    for name, text in texts.items():
                        hub.execute(f"CREATE QUERY late_{name} AS {text}")
                hub.catch_up()
        with rig.hub(2) as hub:
            names = [query.definition.name for query in hub.catalog.queries.values()]
            assert_right(hub, life, names)
            status, rows = hub.status()["streams"]["s"], life.recorded.rows
            assert (status["rows"], status["keep"]) == (len(rows), keeps[-1])
            assert status["shed"] == sum(row.fate == "accepted" and not row.weight for row in rows)
            if blocks.get("archive") != "in place":  # OB-5: the archive is the source, whatever was shed
                assert archived(hub) == [row for file in files for row in file]
