"""Two streams whose rows come in turn and out of order, and queries over both, which the whole engine must answer as the reference does.

One check draws the rows, how they are cut into epochs, the slack of each stream, when a query is registered and paused, whether the home is
closed and opened again in between, whether the streams end for good, and over how many tasks. Late rows are judged stream by stream, as recorded. The reference reads
every window, or at every instant, by itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headrace.algebra.query import Query
from headrace.reference.derived import with_derived
from headrace.reference.evaluate import changes, stream_answer, windows_answer
from headrace.reference.history import History, record
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND
from tests.runtime.rig import answer, canonical

SCHEMA = pa.schema(
    [("k", pa.string()), ("v", pa.int64()), ("d", pa.float64()), ("at", pa.timestamp("us", tz="UTC"))]
)
COLUMNS = "(k STRING, v BIGINT, d DOUBLE, at TIMESTAMP)"
NAMES = [{"k": "a", "name": "one"}, {"k": "b", "name": "two"}, {"k": "b", "name": "zwei"}]

Row = dict[str, Any]


@st.composite
def rows(draw: st.DrawFn) -> Row:
    return {
        "k": draw(st.sampled_from((None, "a", "a", "b", "c"))),
        "v": draw(st.sampled_from((None, -1, 0, 1, 1, 2))),
        "d": draw(st.sampled_from((None, 0.0, 1.5, float("nan")))),
        "at": draw(st.integers(-4, 24)) * (SECOND // 2),
    }


def epochs() -> st.SearchStrategy[list[tuple[list[Row], list[Row]]]]:
    some = st.lists(rows(), max_size=6)
    return st.lists(st.tuples(some, some), min_size=1, max_size=4)


def expected(query: Query, drawn: Sequence[tuple[list[Row], list[Row]]], slacks: Sequence[int]) -> list[Any]:
    """An epoch in which a stream has no row is none of its own."""
    streams = {
        name: record([part for epoch in drawn if (part := epoch[index])], "at", slack)
        for index, (name, slack) in enumerate(zip("ab", slacks, strict=True))
    }
    history = with_derived(query, History(streams, {"names": NAMES}), final=True)
    punctuation = history.punctuation(query)
    if query.emission == "windows":
        return canonical(windows_answer(query, history, punctuation, final=True))
    if query.emission == "stream":
        return canonical(stream_answer(query, history, punctuation, final=True))
    now = history.now(query)
    return canonical(changes(query, history, punctuation if now is None else now + 1))


def table(part: Sequence[Row]) -> pa.Table:
    columns = [pa.array([row[name] for row in part], SCHEMA.field(name).type) for name in SCHEMA.names[:-1]]
    return pa.table(
        [*columns, pa.array([row["at"] for row in part], pa.int64()).cast(SCHEMA.types[-1])], schema=SCHEMA
    )


def opened(folder: str, tasks: int) -> Hub:
    return Hub(Path(folder) / "home", LocalExecutor(), tasks=tasks)


def script(folder: str, slacks: Sequence[int]) -> str:
    file = Path(folder) / "names.csv"
    file.write_text("k,name\n" + "".join(f"{row['k']},{row['name']}\n" for row in NAMES))
    streams = [
        f"CREATE STREAM {name} {COLUMNS} USING push OPTIONS (maxAhead '100000 days') TIMESTAMP BY at"
        f" SLACK INTERVAL {slack} MICROSECONDS"
        for name, slack in zip("ab", slacks, strict=True)
    ]
    relation = (
        f"CREATE RELATION names (k STRING, name STRING) USING csv OPTIONS (path '{file}', header 'true')"
    )
    return ";\n".join([*streams, relation])


def check(queries: Mapping[str, str], data: st.DataObject, at_least: int = 1) -> None:
    """Some of the queries answer as the reference does, whatever happens."""
    chosen = data.draw(
        st.lists(st.sampled_from(sorted(queries)), min_size=at_least, max_size=at_least + 3, unique=True),
        "queries",
    )
    some = st.sampled_from((0, SECOND, 3 * SECOND))
    taken, slacks = data.draw(epochs(), "epochs"), data.draw(st.tuples(some, some), "slacks")
    registered = {name: data.draw(st.integers(0, len(taken)), f"before epoch: {name}") for name in chosen}
    restarts = data.draw(st.sets(st.integers(0, len(taken))), "restarts")
    pauses = {
        name: data.draw(st.sets(st.integers(0, len(taken)), max_size=2), f"paused in: {name}")
        for name in chosen
    }
    with tempfile.TemporaryDirectory() as folder:
        hub = opened(folder, data.draw(st.integers(1, 3), "tasks"))
        try:
            hub.execute(script(folder, slacks))
            for number in range(len(taken) + 1):
                if number in restarts:
                    hub.close()
                    hub = opened(folder, data.draw(st.integers(1, 3), "tasks"))
                for name in (name for name, at in registered.items() if at == number):
                    hub.register(queries[name], name.replace(" ", "_"))
                paused = [name for name in chosen if registered[name] <= number and number in pauses[name]]
                for name in paused:
                    hub.execute(f"PAUSE QUERY {name.replace(' ', '_')}")
                if number < len(taken):
                    for name, part in zip("ab", taken[number], strict=True):
                        if part:
                            hub.push(name, table(part))
                hub.catch_up()
                for name in paused:
                    hub.execute(f"RESUME QUERY {name.replace(' ', '_')}")
            hub.catch_up()
            if data.draw(st.booleans(), "ended for good"):
                paused = data.draw(st.lists(st.sampled_from(chosen), unique=True), "paused at the end")
                for name in paused:
                    hub.execute(f"PAUSE QUERY {name.replace(' ', '_')}")
                hub.finish(seal=True)
                for name in paused:
                    hub.execute(f"RESUME QUERY {name.replace(' ', '_')}")
                hub.catch_up()
            for name in chosen:
                _, query = hub.operator_and_query(name.replace(" ", "_"))
                answered = answer(hub, name.replace(" ", "_"), {})
                assert repr(answered) == repr(expected(query, taken, slacks)), name
        finally:
            hub.close()
