"""Event times that are numbers or expressions: computed when a row is read, and the same whenever it is read again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.errors import UserError
from headrace.language.statements.parse_script import parse_script
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from tests.language.rendering.definition_text import render_stream

_FIRST = 1_700_000_000_000
ROWS = [{"ts": _FIRST + 1000 * second, "k": second % 2} for second in range(130)]
COUNTS = "SELECT window_start, COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE]"
EXPECTED = [
    {"window_start": datetime(2023, 11, 14, 22, 13, tzinfo=UTC), "n": 40},
    {"window_start": datetime(2023, 11, 14, 22, 14, tzinfo=UTC), "n": 60},
    {"window_start": datetime(2023, 11, 14, 22, 15, tzinfo=UTC), "n": 30},
]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with Hub(tmp_path / "home", LocalExecutor(), tasks=2) as hub:
        yield hub


def _csv(path: Path) -> None:
    path.write_text("ts,k\n" + "".join(f"{row['ts']},{row['k']}\n" for row in ROWS))


def _json(path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def _parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), path)


def _arrow(path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, Callable[[Path], None]] = {
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
    "arrow": _arrow,
}


def _answer(hub: Hub, name: str) -> list[dict[str, Any]]:
    hub.execute(f"CREATE QUERY {name} AS {COUNTS}")
    table = hub.run_once()[name]
    return sorted(
        [*hub.query(name).history().to_pylist(), *table.to_pylist()], key=lambda row: row["window_start"]
    )


@pytest.mark.parametrize("using", WRITERS)
@pytest.mark.parametrize("archive", ["copy", "in place"])
def test_a_number_is_an_event_time_by_an_expression(
    hub: Hub, tmp_path: Path, using: str, archive: str
) -> None:
    """The live answer, and that of a query registered later from the archive, have the same times."""
    WRITERS[using](tmp_path / "rows")
    header = ", header 'true'" if using == "csv" else ""
    hub.execute(
        f"CREATE STREAM s (ts BIGINT, k BIGINT) USING {using} OPTIONS (path '{tmp_path}/rows', archive '{archive}'{header})"
        " TIMESTAMP BY timestamp_millis(ts) SLACK INTERVAL 1 SECOND"
    )
    assert _answer(hub, "live") == EXPECTED
    assert _answer(hub, "later") == EXPECTED
    assert hub.execute("SHOW STREAMS")[0].table.column("event_time").to_pylist() == ["timestamp_millis(ts)"]


def test_pushed_numbers_are_event_times_and_a_reopened_home_knows_it(tmp_path: Path) -> None:
    create = "CREATE STREAM s (ts BIGINT, k BIGINT) USING push TIMESTAMP BY timestamp_seconds(ts DIV 1000)"
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute(create)
        hub.push("s", ROWS)
        assert _answer(hub, "live") == EXPECTED
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        assert "already" in hub.execute(create)[0].message
        with pytest.raises(UserError, match=r"TIMESTAMP BY \(timestamp_seconds\(ts DIV 1000\) there"):
            hub.execute(create.replace("ts DIV 1000", "ts"))
        assert _answer(hub, "later") == EXPECTED


def test_a_row_whose_event_time_fails_is_rejected_with_the_reason(hub: Hub) -> None:
    hub.execute("CREATE STREAM s (t STRING, k BIGINT) USING push TIMESTAMP BY CAST(t AS TIMESTAMP)")
    hub.push("s", [{"t": "2024-01-01 00:00:00", "k": 1}, {"t": "soon", "k": 2}, {"t": None, "k": 3}])
    hub.execute("CREATE QUERY bad AS SELECT reason FROM s REJECTS")
    hub.catch_up()
    reasons = sorted(hub.query("bad").history().column("reason").to_pylist())
    assert len(reasons) == 2
    assert reasons[0] == "event time CAST(t AS TIMESTAMP) is null"
    assert reasons[1].startswith("event time CAST(t AS TIMESTAMP): ")
    assert "soon" in reasons[1]
    assert hub.status()["streams"]["s"]["rows"] == 1


def test_the_clock_of_an_expression_is_the_session_s(hub: Hub) -> None:
    hub.execute(
        "SET TIME ZONE 'Europe/Berlin';"
        "CREATE STREAM s (t STRING) USING push TIMESTAMP BY CAST(t AS TIMESTAMP);"
        "SET TIME ZONE 'UTC'"
    )
    hub.push("s", [{"t": "2024-01-01 12:00:00"}])
    hub.catch_up()
    assert hub.execute("SHOW STREAMS")[0].table.column("punctuation").to_pylist() == ["2024-01-01T11:00:00Z"]


@pytest.mark.parametrize(
    ("time", "said"),
    [
        ("ts", "'ts' is BIGINT, not a TIMESTAMP"),
        ("ts + 1", "ts \\+ 1 is BIGINT, not a TIMESTAMP"),
        ("timestamp_millis(0)", "timestamp_millis\\(0\\) is the same for every row"),
        ("timestamp_millis(tz)", "there is no column 'tz'"),
        ("timestamp_millis(MAX(ts))", "cannot hold the aggregate MAX"),
        ("now()", "NOW is not available"),
        ("tz", "there is no column 'tz' for TIMESTAMP BY"),
    ],
)
def test_what_is_no_event_time_is_refused_where_it_stands(hub: Hub, time: str, said: str) -> None:
    text = f"CREATE STREAM s (ts BIGINT) USING push TIMESTAMP BY {time} SLACK INTERVAL 1 SECOND"
    with pytest.raises(UserError, match=said) as refused:
        hub.execute(text)
    place = refused.value.line_and_column
    assert place is not None
    assert place[1] > text.index("BY ")


def test_a_stream_with_an_expression_is_written_as_it_is_read() -> None:
    text = "CREATE STREAM s (ts BIGINT) USING push TIMESTAMP BY timestamp_millis(ts) SLACK INTERVAL 5 SECONDS"
    (statement,) = parse_script(text)
    assert render_stream(statement.definition) == text


@pytest.mark.parametrize(
    ("unit", "number", "fraction"),
    [
        ("epoch seconds", "1700000000", "1700000000.5"),
        ("epoch millis", "1700000000000", "1700000000500"),
        ("Epoch  Micros", "1700000000000000", "1700000000500000"),
        ("epoch nanos", "1700000000000000999", "1700000000500000999"),
    ],
)
@pytest.mark.parametrize("using", ["csv", "json"])
def test_timestamps_are_read_from_numbers(
    hub: Hub, tmp_path: Path, using: str, unit: str, number: str, fraction: str
) -> None:
    """Also in a block with fractions, quotes, blanks and cells that are no numbers; the time zone has no effect."""
    cells = [number, fraction, f'"{number}"', '"x"', '"99999999999999999999999"']
    lines = [f'{{"t": {cell}, "k": 1}}' if using == "json" else f"{cell},1" for cell in cells]
    (tmp_path / "plain").write_text(lines[0] + "\n")
    (tmp_path / "rows").write_text("\n".join(lines) + "\n")
    for name in ("plain", "rows"):
        hub.execute(
            f"CREATE STREAM {name} (t TIMESTAMP, k INT) USING {using} OPTIONS (path '{tmp_path}/{name}',"
            f" timestampFormat '{unit}', timeZone 'Europe/Berlin') TIMESTAMP BY t;"
            f"CREATE QUERY of_{name} AS SELECT t FROM {name}"
        )
    hub.catch_up()
    whole, half = (
        datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        datetime(2023, 11, 14, 22, 13, 20, 500_000, tzinfo=UTC),
    )
    assert hub.query("of_plain").history().column("t").to_pylist() == [whole]
    assert sorted(hub.query("of_rows").history().column("t").to_pylist()) == [whole, whole, half]
    assert hub.status()["streams"]["rows"]["rejected"] == 2


def test_a_format_of_numbers_that_is_none_is_refused(hub: Hub) -> None:
    with pytest.raises(UserError, match="timestampFormat is 'epoch days'") as refused:
        hub.execute(
            "CREATE STREAM s (t TIMESTAMP) USING csv OPTIONS (path '/tmp', timestampFormat 'epoch days')"
        )
    assert "'epoch millis'" in str(refused.value)
