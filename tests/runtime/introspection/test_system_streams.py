"""The built-in streams have of each epoch what its receipts report, once, and nothing of the epochs that only they are the cause of."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.catalog.system_streams import DEFINITIONS, EPOCHS, QUERIES, STREAMS
from headrace.errors import StoreError, UserError
from headrace.observation import EpochObservation
from headrace.operators.panes.emission_limit import EmissionCap
from headrace.runtime.epoch import engine
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.ingest.system_streams.system_feed import FACT
from headrace.runtime.results import result_log
from headrace.runtime.tasks.state import emission_limits
from headrace.time import SECOND
from tests.runtime.ingest.test_repeated_push import BreakingDisk, again, on
from tests.runtime.rig import faults_once_tidy
from tests.store.faults import FaultyDisk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = (
    "CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push OPTIONS (maxAhead '1000 days')"
    " TIMESTAMP BY at SLACK INTERVAL 3 SECONDS;"
)
ORDINARY = {
    "counted": "SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "parts": "SELECT k, 10 / v AS part FROM s WHERE k = 'a'",
    "levels": "SELECT SUM(n) AS n FROM counted [RANGE TUMBLING 8 SECONDS]",
}
"""A window, one whose expression fails on rows with v = 0, and one over results."""
READERS = {
    "epochs": "SELECT * FROM system.epochs",
    "streams": "SELECT * FROM system.streams",
    "queries": "SELECT * FROM system.queries",
}


@contextmanager
def opened(home: Path, seen: list[EpochObservation] | None = None) -> Iterator[Hub]:
    with Hub(home, LocalExecutor(), tasks=2) as hub:
        if seen is not None:
            hub.on_epoch(seen.append)
        yield hub


def script(*parts: dict[str, str]) -> str:
    return STREAM + "".join(
        f"CREATE QUERY {name} AS {text};" for part in parts for name, text in part.items()
    )


def rows(hub: Hub, name: str) -> list[dict[str, Any]]:
    return hub.query(name).history().to_pylist()


def some_rows(rng: random.Random, second: int, count: int) -> list[dict[str, Any]]:
    """Rows around a second: some of them late, some on which a query fails, some too far in the future."""
    return [
        {
            "k": rng.choice("ab"),
            "v": rng.randrange(3),
            "at": (second + rng.randrange(-6, 3)) * SECOND if rng.random() < 0.9 else 1 << 61,
        }
        for _ in range(count)
    ]


def push(hub: Hub, pushed: list[dict[str, Any]]) -> None:
    import pyarrow as pa

    table = pa.Table.from_pylist(
        pushed, pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.int64())])
    )
    at = table.column("at").cast(pa.timestamp("us", tz="UTC"))
    hub.push("s", table.set_column(2, "at", at))


def emitted(hub: Hub, name: str) -> Counter[int]:
    """By epoch, how many rows a query has emitted, from its results."""
    operator, _ = hub.operator_and_query(name)
    parts = result_log.epochs_of(hub.home, hub.home.latest(), operator.id)
    return Counter({part.epoch: part.table.num_rows for part in parts})


@pytest.mark.parametrize("seed", range(3))
def test_each_epoch_has_its_row_and_its_figures_are_those_of_the_receipts(seed: int, tmp_path: Path) -> None:
    rng, seen = random.Random(seed), list[EpochObservation]()
    with opened(tmp_path / "home", seen) as hub:
        hub.execute(script(ORDINARY, READERS))
        hub.loop.drain()
        for second in range(0, 40, 2):
            push(hub, some_rows(rng, second, rng.randrange(1, 6)))
            if rng.random() < 0.7:
                assert hub.loop.step() is not None
        hub.loop.drain()
        row_of = {row["epoch"]: row for row in rows(hub, "epochs")}
        read = {
            observation.epoch: observation
            for observation in seen
            if observation.streams.get("s") and _counts(observation)[0] + _counts(observation)[2]
        }
        assert len(read) > 8
        assert [row["epoch"] for row in rows(hub, "epochs")] == sorted(row_of)  # each once, in order
        results = sum((emitted(hub, name) for name in ORDINARY), Counter[int]())
        for epoch, observation in read.items():
            row = row_of.pop(epoch)
            assert (row["kind"], row["rows"], row["late"], row["rejected"]) == (
                "epoch",
                *_counts(observation),
            )
            assert (row["seconds"], row["state_bytes"]) == (
                observation.seconds["execute"],
                observation.state_bytes,
            )
            assert (row["state_runs"], row["results"]) == (observation.state_runs, results.pop(epoch, 0))
        assert all(
            row["kind"] == "tick" and row["rows"] == 0 for row in row_of.values()
        )  # of the registration
        assert not results, "results of ordinary queries in epochs without a row"
        _assert_streams_and_queries(hub, read)
        assert faults_once_tidy(hub) == []


def _counts(seen: EpochObservation) -> tuple[int, int, int]:
    stream = seen.streams["s"]
    return stream.rows, stream.late, stream.rejected


def _assert_streams_and_queries(hub: Hub, read: dict[int, EpochObservation]) -> None:
    by_stream = {
        (row["epoch"], row["stream"]): (row["rows"], row["late"], row["rejected"])
        for row in rows(hub, "streams")
    }
    assert by_stream == {(epoch, "s"): _counts(observation) for epoch, observation in read.items()}
    assert len(by_stream) == len(rows(hub, "streams"))
    changes = [row for row in rows(hub, "queries") if not row["results"] and not row["rejected"]]
    assert {row["query"] for row in changes} == {*ORDINARY, *READERS}  # they were registered
    assert {row["state"] for row in changes} == {"live"}
    for name in ORDINARY:
        of_query = [row for row in rows(hub, "queries") if row["query"] == name]
        assert Counter({row["epoch"]: row["results"] for row in of_query if row["results"]}) == emitted(
            hub, name
        )
        rejected = sum(row["rejected"] for row in of_query)
        assert rejected == hub.status()["rejected"].get(name, 0)
        assert (rejected > 0) == (name == "parts")


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_between_two_epochs_the_sums_are_what_is_committed(
    seed: int, tmp_path: Path
) -> None:
    """Homes that are closed and opened at any point, with queries registered, dropped and paused in between."""
    rng = random.Random(100 + seed)
    with opened(tmp_path / "home") as hub:
        hub.execute(script(ORDINARY, READERS))
    for second in range(0, 60, 2):
        with opened(tmp_path / "home") as hub:
            if rng.random() < 0.2:
                other = f"CREATE QUERY other AS {ORDINARY['counted']}"
                hub.execute(other if hub.catalog.query("other") is None else "DROP QUERY other")
            if rng.random() < 0.2:
                hub.execute(rng.choice(["PAUSE QUERY epochs", "RESUME QUERY epochs", "PAUSE QUERY counted"]))
            push(hub, some_rows(rng, second, rng.randrange(1, 6)))
            for _ in range(rng.randrange(3)):
                hub.loop.step()
    with opened(tmp_path / "home") as hub:
        hub.execute("RESUME QUERY epochs; RESUME QUERY counted")
        hub.run_once()
        assert_sums(hub)


def assert_sums(hub: Hub, *queries: str) -> None:
    """No row about an epoch is lost or there twice."""
    committed = hub.status()["streams"]["s"]
    for name in ("epochs", "streams"):
        epochs = [row for row in rows(hub, name) if row.get("kind") != "replay"]
        assert len({row["epoch"] for row in epochs}) == len(epochs)
        for count in ("rows", "late", "rejected"):
            assert sum(row[count] for row in epochs) == committed[count], (name, count)
    for name in queries or ORDINARY:
        of_query = [row for row in rows(hub, "queries") if row["query"] == name]
        assert sum(row["results"] for row in of_query) == sum(emitted(hub, name).values()), name
    in_queries, in_epochs = (sum(row["results"] for row in rows(hub, name)) for name in ("queries", "epochs"))
    assert in_queries == in_epochs


def test_a_row_is_the_cause_of_no_other_row(tmp_path: Path) -> None:
    """An epoch that only answers queries over built-in streams has none: an idle home comes to rest."""
    with opened(tmp_path / "home") as hub:
        hub.execute(script(ORDINARY, READERS))
        hub.execute(
            "CREATE QUERY minutes AS SELECT COUNT(*) AS n FROM epochs [RANGE 1 SECOND SLIDE 1 MILLISECOND]"
        )
        hub.loop.drain()
        for second in range(5):
            push(hub, [{"k": "a", "v": 1, "at": second * SECOND}])
            assert 2 <= hub.loop.drain() < 50
            last = hub.home.latest().facts[FACT]["epoch"]
            assert last < hub.home.latest().epoch
            assert rows(hub, "epochs")[-1]["epoch"] == last
        assert hub.loop.drain() == 0
        assert sum(row["rows"] for row in rows(hub, "epochs")) == 5
        assert {row["stream"] for row in rows(hub, "streams")} == {"s"}
        assert not {"minutes", *READERS} & {row["query"] for row in rows(hub, "queries") if row["results"]}


def test_windows_that_are_emitted_in_epochs_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ordinary queries they have rows, of queries over built-in streams they have none."""
    monkeypatch.setattr(emission_limits, "EMISSION_CAP", EmissionCap(40, 25))
    now = [0]
    with Hub(tmp_path / "home", LocalExecutor(), clock=lambda: now[0], tasks=1) as hub:
        hub.execute(
            script({"every": "SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 SECOND] EMIT EMPTY"}, READERS)
        )
        hub.execute(
            "CREATE QUERY own AS SELECT COUNT(*) AS n FROM system.epochs [RANGE TUMBLING 1 SECOND] EMIT EMPTY"
        )
        hub.loop.drain()
        read = []
        for number in range(1, 4):
            now[0] = number * 300 * SECOND
            push(hub, [{"k": "a", "v": 1, "at": number * 200 * SECOND}])
            before = hub.home.latest().epoch
            assert hub.loop.drain() > 8
            later = [row for row in rows(hub, "epochs") if row["epoch"] > before]
            assert [row["rows"] for row in later] == [1] + [0] * (len(later) - 1)
            assert sum(row["results"] for row in later) == sum(emitted(hub, "every").values()) - sum(read)
            assert all(row["results"] for row in later[1:])
            read.append(sum(row["results"] for row in later))
        assert len(emitted(hub, "own")) > 4  # in parts too
        assert_sums(hub, "every")


def test_an_epoch_with_rows_of_its_own_and_of_others_has_a_row_about_the_others(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        hub.execute(script(ORDINARY, READERS))
        for second in range(5):
            push(hub, [{"k": "a", "v": 1, "at": second * SECOND}])
            assert hub.loop.step() is not None  # the row about the epoch before is in it
        hub.loop.drain()
        assert [row["rows"] for row in rows(hub, "epochs")] == [1] * 5
        assert [row["results"] for row in rows(hub, "epochs")] == [1, 1, 1, 1, 1]


def test_what_no_query_reads_costs_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        hub.execute(script(ORDINARY))
        push(hub, [{"k": "a", "v": 1, "at": 0}])
        hub.loop.drain()
        assert FACT not in hub.home.latest().facts
        assert [*hub.catalog.streams] == ["s"]
        hub.execute(f"CREATE QUERY epochs AS {READERS['epochs']}")
        assert [*hub.catalog.streams] == ["s", EPOCHS]
        push(hub, [{"k": "a", "v": 1, "at": SECOND}])
        hub.loop.drain()
        assert hub.status()["streams"][EPOCHS]["rows"] == 1
        hub.execute("DROP QUERY epochs")
        for second in range(2, 5):
            push(hub, [{"k": "a", "v": 1, "at": second * SECOND}])
            hub.loop.drain()
        assert hub.status()["streams"][EPOCHS]["rows"] == 1


def test_a_later_query_reads_the_archive_and_a_paused_one_catches_up(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        hub.execute(script(ORDINARY, READERS))
        hub.execute("PAUSE QUERY epochs")
        for second in range(4):
            push(hub, [{"k": "a", "v": 1, "at": second * SECOND}])
            hub.loop.drain()
        assert rows(hub, "epochs") == []
        hub.execute(
            "RESUME QUERY epochs;"
            "CREATE QUERY total AS SELECT COUNT(*) AS n, SUM(rows) AS total, MAX(seconds) AS longest FROM system.epochs;"
            "CREATE QUERY since AS SELECT epoch FROM system.epochs WHERE rows > 0 BEGIN TIMESTAMP '2000-01-01 00:00:00' END TIMESTAMP '2100-01-01 00:00:00'"
        )
        hub.loop.drain()
        read = [row for row in rows(hub, "epochs") if row["rows"]]
        assert len(read) == 4
        (total,) = hub.query("total").invoke().to_pylist()
        assert (total["n"], total["total"]) == (len(rows(hub, "epochs")), 4)
        assert total["longest"] == max(row["seconds"] for row in rows(hub, "epochs"))
        assert {row["epoch"] for row in hub.query("since").invoke().to_pylist()} == {
            row["epoch"] for row in read
        }


def test_a_window_over_epochs_equals_the_counters(tmp_path: Path) -> None:
    """An introspection query (StreaMon's Q13): an aggregate over the system's stream is the sum of its counters."""
    instants = iter(range(0, 1000 * SECOND, SECOND))
    with Hub(tmp_path / "home", LocalExecutor(), clock=lambda: next(instants), tasks=1) as hub:
        hub.execute(script(ORDINARY, READERS))
        hub.execute(
            "CREATE QUERY load AS SELECT SUM(e.rows) AS rows, COUNT(*) AS n, MAX(e.state_bytes) AS most"
            " FROM system.epochs AS e [RANGE 60 SECONDS SLIDE 60 SECONDS]"
        )
        for second in range(30):
            push(hub, [{"k": "a", "v": 1, "at": second * SECOND}] * (second % 3 + 1))
            hub.loop.drain()
        windows = hub.query("load").history().to_pylist()
        assert len(windows) > 2
        by_minute: dict[int, list[dict[str, Any]]] = {}
        for row in rows(hub, "epochs"):
            by_minute.setdefault(int(row["at"].timestamp()) // 60, []).append(row)
        for window, (_, counted) in zip(windows, sorted(by_minute.items()), strict=False):
            assert (window["rows"], window["n"]) == (sum(row["rows"] for row in counted), len(counted))
            assert window["most"] == max(row["state_bytes"] for row in counted)


def test_states_of_queries_are_rows_of_the_epoch_that_has_them(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        hub.execute(script(ORDINARY, READERS))
        hub.loop.drain()
        for change in (
            "PAUSE QUERY parts",
            "RESUME QUERY parts",
            "ALTER QUERY parts RENAME TO pieces",
            "DROP QUERY pieces",
        ):
            hub.execute(change)
            hub.loop.drain()
        hub.log({"do": "pause", "name": "counted", "reason": "it was too large"})
        hub.loop.drain()
        states = [(row["query"], row["state"], row["failure"]) for row in rows(hub, "queries")]
        assert [state for state in states if state[0] in ("parts", "pieces")] == [
            ("parts", "live", None),
            ("parts", "paused", None),
            ("parts", "live", None),
            ("parts", "dropped", None),
            ("pieces", "live", None),
            ("pieces", "dropped", None),
        ]
        assert states[-1] == ("counted", "failed", "it was too large")


def test_rows_about_many_queries_are_in_a_file_of_the_epoch(tmp_path: Path) -> None:
    many = {f"q{number}": f"SELECT k, v FROM s WHERE v >= {number % 2}" for number in range(400)}
    with opened(tmp_path / "home") as hub:
        hub.execute(script({"queries": READERS["queries"]}, many))
        push(hub, [{"k": "a", "v": 1, "at": SECOND}])
        hub.loop.step()
        fact = hub.home.latest().facts[FACT]
        assert "rows" not in fact
        assert (tmp_path / "home" / fact["file"]).is_file()
    with opened(tmp_path / "home") as hub:
        hub.loop.drain()
        about = [row for row in rows(hub, "queries") if row["results"]]
        assert sorted(row["query"] for row in about) == sorted(many)
        assert {row["results"] for row in about} == {1}
        assert faults_once_tidy(hub) == []


def test_a_clock_that_goes_back_makes_no_row_late(tmp_path: Path) -> None:
    now = [1000 * SECOND]
    with Hub(tmp_path / "home", LocalExecutor(), clock=lambda: now[0], tasks=1) as hub:
        hub.execute(script(READERS))
        for second, at in enumerate((1000, 2000, 500, 3000)):
            now[0] = at * SECOND
            push(hub, [{"k": "a", "v": 1, "at": second * SECOND}])
            hub.loop.drain()
        seconds = [int(row["at"].timestamp()) for row in rows(hub, "epochs") if row["rows"]]
        assert seconds == [1000, 2000, 2000, 3000]
        assert hub.status()["streams"][EPOCHS]["late"] == 0


def test_a_stream_that_was_dropped_starts_from_scratch(tmp_path: Path) -> None:
    """Rows that wait in the manifest are of the stream before."""
    with opened(tmp_path / "home") as hub:
        hub.execute(script(ORDINARY, {"epochs": READERS["epochs"]}))
        push(hub, [{"k": "a", "v": 1, "at": SECOND}])
        hub.loop.step()
        before = hub.home.latest().facts[FACT]["epoch"]
        hub.execute("DROP QUERY epochs; DROP STREAM system.epochs")
        assert [*hub.catalog.streams] == ["s"]
        hub.execute(f"CREATE QUERY epochs AS {READERS['epochs']}")
        hub.loop.drain()
        push(hub, [{"k": "a", "v": 1, "at": 2 * SECOND}])
        hub.loop.drain()
        epochs = [row["epoch"] for row in rows(hub, "epochs")]
        assert epochs
        assert before not in epochs


def test_rows_of_the_last_epoch_are_in_the_answers_of_a_run(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        hub.execute(script(ORDINARY, READERS))
        push(hub, [{"k": "a", "v": 1, "at": SECOND}])
        hub.run_once()
        assert [row["rows"] for row in rows(hub, "epochs")] == [1]
        push(hub, [{"k": "a", "v": 1, "at": 2 * SECOND}])
        hub.run_once(seal=True)
        assert [row["rows"] for row in rows(hub, "epochs")] == [
            1,
            1,
        ]  # none of the epochs that end the streams
        push(hub, [{"k": "a", "v": 1, "at": 3 * SECOND}])
        hub.run_once()
        assert hub.status()["streams"][EPOCHS]["late"] == 0


def test_rows_that_wait_when_an_epoch_of_an_opening_has_rows_are_ingested_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that finds the plan of another version publishes an epoch before it does anything else."""
    with opened(tmp_path / "home") as hub:
        hub.execute(script(ORDINARY, READERS))
        hub.loop.drain()
        push(hub, [{"k": "a", "v": 1, "at": SECOND}])
        assert hub.loop.step() is not None
        hub.execute("PAUSE QUERY parts")
    monkeypatch.setattr(engine, "is_readable", lambda *_: False)
    with opened(tmp_path / "home") as hub:
        hub.loop.drain()
        assert [row["rows"] for row in rows(hub, "epochs")] == [0, 1, 0]
        assert [row["state"] for row in rows(hub, "queries") if row["query"] == "parts"][-1] == "paused"
        assert_sums(hub)


@pytest.mark.parametrize("lasting", [False, True])
def test_a_disk_that_fails_at_any_call_loses_no_row(lasting: bool, tmp_path: Path) -> None:
    """The epoch is published, its rows cannot be ingested: the loop repeats that, and nothing else."""
    with opened(tmp_path / "home") as hub:
        hub.execute(script(ORDINARY, READERS))
        push(hub, [{"k": "a", "v": 1, "at": SECOND}])
        assert hub.loop.step() is not None
    traced = FaultyDisk()
    with opened(again(tmp_path / "home", "traced")) as hub, on(hub, traced):
        hub.loop.engine.system_feed.ingest(hub.home.latest())
    assert len(traced.trace) > 6
    for number in range(len(traced.trace)):
        disk = BreakingDisk(broken_from=number) if lasting else BreakingDisk(full_at=number)
        with opened(again(tmp_path / "home", f"home{number}")) as hub:
            with on(hub, disk), suppress(StoreError):
                hub.loop.step()
            hub.loop.drain()
            assert_sums(hub)


def test_an_alert_on_oneself_while_the_hub_runs(tmp_path: Path) -> None:
    """Rows of a running hub reach a query, and its action another stream; then the hub comes to rest."""
    with opened(tmp_path / "home") as hub:
        hub.execute(script(ORDINARY))
        hub.execute(
            "CREATE STREAM alarms (query STRING, failure STRING) USING push;"
            "CREATE QUERY suspended AS SELECT query, failure FROM system.queries WHERE state = 'failed' THEN WRITE TO alarms;"
            "CREATE QUERY heard AS SELECT query, failure FROM alarms"
        )
        with hub.running():
            push(hub, [{"k": "a", "v": 1, "at": SECOND}])
            hub.log({"do": "pause", "name": "counted", "reason": "it was too large"})
            while not rows(hub, "heard"):
                hub.loop.wait_for_epoch_after(hub.home.latest().epoch)
            while hub.loop.engine.has_system_rows():
                hub.loop.wait_for_epoch_after(hub.home.latest().epoch)
        assert rows(hub, "heard") == [{"query": "counted", "failure": "it was too large"}]
        hub.loop.drain()
        assert hub.loop.drain() == 0


def test_what_a_query_gets_it_also_gets_with_a_budget_of_synopses_and_in_explain(tmp_path: Path) -> None:
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1, synopsis_bytes=1 << 20) as hub:
        (outcome,) = hub.execute("EXPLAIN SELECT epoch FROM system.epochs WHERE seconds > 1")
        assert "system.epochs" in outcome.message
        assert not hub.catalog.streams  # nothing reads it
        hub.execute(
            "CREATE QUERY medians AS SELECT APPROX_PERCENTILE(seconds, 0.5) AS m FROM system.epochs [RANGE 1 HOUR SLIDE 1 HOUR]"
        )
        assert [*hub.catalog.streams] == [EPOCHS]
        assert "system.epochs" in hub.explain("medians")


def test_a_query_that_is_refused_leaves_no_stream(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        with pytest.raises(UserError):
            hub.execute(
                "CREATE QUERY q AS SELECT epoch, COUNT(*) FROM system.epochs [RANGE 1 DAY SLIDE 1 MICROSECOND]"
            )
        assert not hub.catalog.streams


@pytest.mark.spark
def test_they_are_read_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    from headrace.runtime.hub.opening import open_hub

    with open_hub(tmp_path / "home", spark=spark) as hub:
        hub.execute(script(ORDINARY, READERS))
        for second in range(3):
            push(hub, [{"k": "a", "v": 1, "at": second * SECOND}] * (second + 1))
            hub.run_once()
        assert [row["rows"] for row in rows(hub, "epochs") if row["rows"]] == [1, 2, 3]
        assert_sums(hub)
        assert hub.archive(EPOCHS).count() == len(rows(hub, "epochs"))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT * FROM system.epoch", "system.epochs"),
        ("CREATE STREAM system (a INT) USING push; CREATE QUERY q AS SELECT a FROM system.a", "system.a"),
    ],
)
def test_other_names_after_system_are_unknown(statement: str, message: str, tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub, pytest.raises(UserError, match=message):
        hub.execute(statement if statement.startswith("CREATE") else f"CREATE QUERY q AS {statement}")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE STREAM `system.epochs` (a INT) USING push",
        "CREATE QUERY `system.mine` AS SELECT k FROM s",
        "CREATE QUERY mine AS SELECT k FROM s; ALTER QUERY mine RENAME TO `System.mine`",
    ],
)
def test_their_names_are_reserved(statement: str, tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        hub.execute(STREAM)
        with pytest.raises(UserError, match="built-in streams"):
            hub.execute(statement)


def test_nobody_pushes_to_them(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        hub.execute(script(READERS))
        with pytest.raises(UserError, match="takes no pushed rows"):
            hub.push(STREAMS, [{"epoch": 1}])


def test_they_can_be_described_and_joined(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        for name, stream in DEFINITIONS.items():
            (outcome,) = hub.execute(f"DESCRIBE {name}")
            assert outcome.table is not None
            assert outcome.table.column("column").to_pylist() == list(stream.schema.names)
        hub.execute(script(ORDINARY))
        hub.execute(
            "CREATE QUERY slow AS SELECT queries.query, epochs.seconds"
            " FROM system.queries [RANGE UNBOUNDED], system.epochs [RANGE UNBOUNDED]"
            " WHERE queries.epoch = epochs.epoch AND queries.results > 0"
        )
        push(hub, [{"k": "a", "v": 1, "at": SECOND}])
        hub.loop.drain()
        assert {row["query"] for row in hub.query("slow").invoke().to_pylist()} == {"parts"}
        assert QUERIES in hub.status()["streams"]
