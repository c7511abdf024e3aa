"""Questions over the archive: whatever was read, reduced, merged or late, estimates and errors are the reference's; all read, they are exact.

Which rows were read the test takes from the files alone: the row groups of the prefixes, and the blocks that rows have in them.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.query import Query
from headrace.archive.runs import BLOCK
from headrace.reference.evaluate import relation_at
from headrace.reference.history import History, RecordedStream, StreamRow, record
from headrace.reference.sampling.questions import SampleOfKeys, SampleOfRows, question
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke.questions import answer
from headrace.runtime.invoke.questions.clauses import question_of
from headrace.runtime.plan.bound_queries import bind_text
from headrace.runtime.samples import run_samples
from headrace.store.logs import radix_list
from headrace.time import SECOND
from tests.examples import examples

BLOCKS = 4
Row = dict[str, Any]

AGGREGATES = (
    "COUNT(*) AS n",
    "COUNT(x) AS xs",
    "COUNT(*) FILTER (WHERE x > 3) AS many",
    "SUM(x) AS total",
    "SUM(y) FILTER (WHERE g = 1) AS part",
    "AVG(y) AS mean",
    "AVG(x) FILTER (WHERE g <> 2) AS mid",
    "SUM(x) / COUNT(*) AS rate",
    "100 * COUNT(*) FILTER (WHERE y > 0) / COUNT(y) AS percent",
    "SUM(y) - 2 * SUM(x) AS rest",
)
TAILS = (
    "",
    " WHERE x > -5",
    " WHERE k IN ('a', 'b') OR x = 2",
    " BEGIN TIMESTAMP '1970-01-01 00:00:04' END TIMESTAMP '1970-01-01 00:00:12'",
    " WHERE g = 1 BEGIN NOW - INTERVAL 8 SECONDS END NOW",
)
REDUCTIONS = (
    "uniform(0.5)",
    "age(3 SECONDS 0.5)",
    "rows(2 PER x EVERY 4 SECONDS)",
    "error(30 PERCENT OF x PER y EVERY 5 SECONDS), age(6 SECONDS 0.25)",
    "load(8 KB)",
)
KEYS = ((), ("g",), ("k", "g"), ("x % 3 AS r",))


@st.composite
def texts(draw: st.DrawFn, keys: Sequence[tuple[str, ...]] = KEYS) -> str:
    """Questions over one stream."""
    chosen = draw(st.lists(st.sampled_from(AGGREGATES), min_size=1, max_size=4, unique=True))
    grouped = draw(st.sampled_from(keys))
    by = f" GROUP BY {', '.join(key.partition(' AS ')[0] for key in grouped)}" if grouped else ""
    return f"SELECT {', '.join((*grouped, *chosen))} FROM s{draw(st.sampled_from(TAILS))}{by}"


def values() -> st.SearchStrategy[Row]:
    """Few values, so that there are ties and groups of several rows; NULL is among them."""
    return st.fixed_dictionaries(
        {
            "k": st.sampled_from(("a", "b", "c", "d", "e", "", None)),
            "g": st.sampled_from((0, 1, 2, None)),
            "x": st.one_of(st.none(), st.integers(-9, 9)),
            "y": st.sampled_from((0.0, 0.5, -1.25, 3.0, 0.1, 1e6, float("nan"), None)),
            "at": st.integers(0, 60).map(lambda tick: tick * SECOND // 4),
        }
    )


def epochs() -> st.SearchStrategy[list[list[Row]]]:
    """Rows of some epochs, in any order of time: some of them are late."""
    return st.lists(st.lists(values(), min_size=1, max_size=14), min_size=1, max_size=4)


@contextmanager
def archived(
    streams: Mapping[str, Sequence[Sequence[Row]]], options: str, slack: int, sampled_by: int = 64
) -> Iterator[tuple[Hub, History]]:
    """A hub with these rows in its archive, numbered, and the same as a history; `sampled_by` epochs have a sample."""
    with (
        pytest.MonkeyPatch.context() as patched,
        tempfile.TemporaryDirectory() as folder,
        open_hub(Path(folder) / "home", local=True) as hub,
    ):
        patched.setattr(run_samples, "GROUP", sampled_by)
        patched.setattr(run_samples, "LEAST_ROWS", 1)
        patched.setattr(radix_list, "FANOUT", 3)  # so many epochs are joined in one file
        hub.loop.engine.archive_files.kinds.sampling.every = (
            hub.loop.engine.archive_files.kinds.joining.every
        ) = 1
        recorded: dict[Any, RecordedStream] = {}
        for name, cut in streams.items():
            hub.execute(
                f"CREATE STREAM {name} (id BIGINT, k STRING, g INT, x BIGINT, y DOUBLE, at TIMESTAMP) USING push"
                f" OPTIONS ({options}) TIMESTAMP BY at SLACK INTERVAL {slack} SECONDS"
            )
            number = iter(range(1000))
            numbered = [[{"id": next(number), **row} for row in epoch] for epoch in cut]
            for epoch in numbered:
                hub.push(name, table(epoch))
                hub.catch_up()
            recorded[name] = by_number(record(numbered, "at", slack * SECOND))
        yield hub, History(recorded)


def table(rows: Sequence[Row]) -> pa.Table:
    kinds = {"id": pa.int64(), "k": pa.string(), "g": pa.int32(), "x": pa.int64(), "y": pa.float64()}
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
    at = pa.array([row["at"] for row in rows], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({**columns, "at": at})


def by_number(stream: RecordedStream) -> RecordedStream:
    rows = tuple(StreamRow(row.values, row.at, row.values["id"], row.epoch, row.fate) for row in stream.rows)
    return RecordedStream(rows, stream.punctuations)


def compare(found: Sequence[Row], expected: Sequence[Row]) -> None:
    """The same rows; doubles within rounding."""
    assert len(found) == len(expected), (found, expected)
    for one, other in zip(found, expected, strict=True):
        assert [name for name in one if name != "kept"] == list(other)
        numbers = [value for value in other.values() if isinstance(value, float) and math.isfinite(value)]
        scale = max([1.0, *map(abs, numbers)])
        for name, value in other.items():
            if isinstance(value, float) and isinstance(one[name], float):
                loose = 1e-5 * scale if name.endswith("_error") else 1e-9 * scale
                close = math.isclose(one[name], value, rel_tol=1e-4 if loose > 1e-6 else 1e-9, abs_tol=loose)
                assert close or (math.isnan(one[name]) and math.isnan(value)), (name, one, other)
            else:
                assert one[name] == value, (name, one, other)


def sampled(hub: Hub, query: Query, share: float) -> tuple[Any, list[Row]]:
    """What a question has read of each run, and its answer from that."""
    home = hub.home
    manifest = home.latest()
    asked = question_of(query, home.catalog.stream)
    sample = answer._sample(home, manifest, asked)
    for step in (0.25, share):
        sample.extend(step, lambda: False)
    groups, found = sample.answer()
    return sample, answer._asked(asked, sample, groups, found).table.to_pylist()


def rows_read(home: Path, sample: Any) -> SampleOfRows:
    """The strata: of runs of which the same share was read, the rows that they had, and the rows of the prefixes."""
    strata: dict[float, tuple[int, list[int]]] = {}
    for run in sample.source.runs:
        size, numbers = strata.get(run.prefixes.shares[run.done], (0, []))
        groups = list(run.prefixes.groups_up_to(run.done))
        file = pq.ParquetFile(home / run.name)
        read = file.read_row_groups(groups, ["id"]).column("id").to_pylist() if groups else []
        strata[run.prefixes.shares[run.done]] = size + run.prefixes.population, numbers + read
    return SampleOfRows([strata[share] for share in sorted(strata)], Fraction(min(strata, default=1)))


@examples(30)
@given(data=st.data())
def test_estimates_from_rows_and_their_errors_are_the_reference_s(data: st.DataObject) -> None:
    reduce = data.draw(st.sampled_from(("", *(f", reduce '{each}'" for each in REDUCTIONS))), "reduce")
    cut, slack = data.draw(epochs(), "epochs"), data.draw(st.integers(0, 8), "slack")
    by = data.draw(st.sampled_from((1, 2, 64)), "epochs of a sample")
    reducer = data.draw(st.sampled_from(("", *REDUCTIONS)), "reducer")
    with archived({"s": cut}, f"blocks '{BLOCKS}'{reduce}", slack, by) as (hub, history):
        if reduce and data.draw(st.booleans(), "reduced before the reducer"):
            hub.vacuum()
        if reducer:
            hub.execute(f"CREATE REDUCER r ON s AS '{reducer}'")
            hub.catch_up()
        if reduce or reducer:
            hub.vacuum()
        for _ in range(4):
            text = data.draw(texts(), "question")
            if reducer:
                text = text.replace("FROM s", "FROM s REDUCED BY r")
            query = bind_text(hub.home.catalog, text)
            sample, found = sampled(hub, query, data.draw(st.sampled_from((0.25, 0.5, 0.75, 1.0)), "share"))
            expected = question(query, history, rows_read(Path(hub.path), sample))
            compare(found, expected)


@examples(20)
@given(data=st.data())
def test_what_is_asked_exactly_is_the_relation_at_now(data: st.DataObject) -> None:
    options = data.draw(
        st.sampled_from((f"blocks '{BLOCKS}'", f"blocks '{BLOCKS}', blocksBy 'k'", "blocks '1'"))
    )
    cut, slack = data.draw(epochs(), "epochs"), data.draw(st.integers(0, 8), "slack")
    exact = tuple(each for each in AGGREGATES if "/" not in each)
    more = ("PERCENTILE(x, 0.5) AS middle", "PERCENTILE(y, 0.9) FILTER (WHERE g = 1) AS high")
    if "blocksBy" in options:
        more = ("COUNT(DISTINCT k) AS ks",)
    by = data.draw(st.sampled_from((1, 2, 64)), "epochs of a sample")
    with archived({"s": cut}, options, slack, by) as (hub, history):
        for _ in range(4):
            chosen = data.draw(
                st.lists(st.sampled_from((*exact, *more)), min_size=1, max_size=4, unique=True)
            )
            tail = data.draw(st.sampled_from(TAILS))
            text = f"SELECT g, {', '.join(chosen)} FROM s{tail} GROUP BY g"
            query = bind_text(hub.home.catalog, text)
            now = history.now(query)
            expected = [] if now is None else relation_at(query, history, now)
            (outcome,) = hub.execute(f"{text} WITHIN 0 PERCENT")
            assert outcome.table is not None
            found = outcome.table.to_pylist()
            names = query.schema.names
            assert all(row[f"{name}_error"] in (0.0, None) for row in found for name in names if name != "g")
            doubles = [
                {
                    name: float(value) if name != "g" and value is not None else value
                    for name, value in row.items()
                }
                for row in expected
            ]
            compare([{name: row[name] for name in names} for row in found], doubles)


BY_K = (
    "SELECT COUNT(*) AS n, SUM(x) AS total, AVG(y) AS mean, SUM(g) / COUNT(*) AS gs FROM (SELECT k, SUM(x) AS x, MAX(y) AS y,"
    " COUNT(DISTINCT g) AS g FROM s{} GROUP BY k) AS q"
)
BY_K_AND_G = (
    "SELECT COUNT(*) AS n, SUM(x) / COUNT(y) AS rate FROM (SELECT MIN(x) AS x, AVG(y) AS y FROM s{} GROUP BY k, g"
    " HAVING COUNT(*) > 1) AS q WHERE x > -4"
)
JOINS = (
    "SELECT COUNT(*) AS n, SUM(a.x * b.x) AS products, AVG(b.y) AS mean FROM s AS a, t AS b WHERE a.k = b.k AND a.g = b.g",
    "SELECT a.g, COUNT(*) AS n, SUM(b.x) AS total FROM s AS a JOIN t AS b ON a.k = b.k WHERE b.x > 0 GROUP BY a.g",
)


def keys_drawn(home: Path, share: float, histories: History) -> SampleOfKeys:
    """The keys of the blocks below a share."""
    keys = {
        row["k"]
        for name in histories.streams
        for file in (home / "archive" / name).iterdir()
        for row in pq.read_table(file, columns=["k", BLOCK]).to_pylist()
        if row[BLOCK] < share * BLOCKS
    }
    return SampleOfKeys(dict.fromkeys(histories.streams, "k"), Fraction(share), list(keys))


@examples(30)
@given(data=st.data())
def test_estimates_from_keys_and_their_errors_are_the_reference_s(data: st.DataObject) -> None:
    cuts = {name: data.draw(epochs(), name) for name in ("s", "t")}
    reduce = data.draw(st.sampled_from(("", ", reduce 'uniform(0.5)'")), "reduce")
    slack = data.draw(st.integers(0, 4), "slack")
    with archived(cuts, f"blocks '{BLOCKS}', blocksBy 'k'{reduce}", slack) as (hub, history):
        if reduce:
            hub.vacuum()
        for _ in range(4):
            text = data.draw(
                st.one_of(
                    texts(),
                    st.just("SELECT g, COUNT(DISTINCT k) AS ks, COUNT(*) AS n FROM s GROUP BY g"),
                    st.builds(str.format, st.sampled_from((BY_K, BY_K_AND_G)), st.sampled_from(TAILS)),
                    st.sampled_from(JOINS),
                ),
                "question",
            )
            query = bind_text(hub.home.catalog, text)
            share = data.draw(st.sampled_from((0.25, 0.5, 0.75, 1.0)), "share")
            sample, found = sampled(hub, query, share)
            streams = {side.stream.name for side in question_of(query, hub.home.catalog.stream).sides}
            read = History({name: stream for name, stream in history.streams.items() if name in streams})
            runs = [run for source in sample.sources for run in source.runs]
            stored = min((run.prefixes.shares[-1] for run in runs), default=1.0)
            whole = all(run.done == len(run.prefixes.shares) - 1 for run in runs)
            least = stored if whole else min(share, stored)
            compare(found, question(query, read, keys_drawn(Path(hub.path), least, read)))
