"""Rows that are pushed over HTTP and do not fit their stream: rejects of the stream, as for any other source."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from tests.runtime.delivery.actions.receiving import until
from tests.server.serving import STREAM, TOTAL, Served, served

REFUSED = "CREATE QUERY refused AS SELECT position, text, reason FROM s REJECTS;"
JSON_LINES = ("-H", "Content-Type: application/x-ndjson")
CSV = ("-H", "Content-Type: text/csv")
GOOD = '{"k":"a","v":1,"at":"2024-01-01T00:00:01Z"}'
BAD_CELL = '{"k":"b","v":"x","at":"2024-01-01T00:00:02Z"}'
NO_TIME = '{"k":"c","v":3,"at":null}'
FAR = '{"k":"d","v":4,"at":"9000-01-01T00:00:00Z"}'
HALF = '{"k":"e","v":"\\ud800","at":"2024-01-01T00:00:05Z"}'
"""A cell with half of a surrogate pair, which is no text."""


def rejects_of(hub: Served) -> list[str]:
    return sorted(row["reason"] for row in hub.get("/v1/queries/refused/results")["rows"])


def counted(hub: Served) -> tuple[int, int]:
    (stream,) = (one for one in hub.get("/v1/status")["streams"].items() if one[0] == "s")
    return stream[1]["rows"], stream[1]["rejected"]


@pytest.fixture
def hub(tmp_path: Path) -> Any:
    with served(tmp_path / "home") as running:
        status, outcomes = running.post("/v1/statements", STREAM + TOTAL + REFUSED)
        assert status == 200, outcomes
        yield running


def test_a_row_that_does_not_fit_is_stored_counted_and_readable(hub: Served) -> None:
    lines = [GOOD, BAD_CELL, GOOD, NO_TIME, FAR, HALF]
    for _ in range(2):  # with its key it counts once
        status, answer = hub.post(
            "/v1/streams/s/rows", "\n".join(lines), *JSON_LINES, "-H", "Idempotency-Key: j"
        )
        assert (status, answer["accepted"], answer["rejected"]) == (200, 2, 4), answer
        assert [reason["row"] for reason in answer["reasons"]] == [1, 3, 4, 5]
    until(lambda: counted(hub) == (2, 4))
    assert hub.get("/v1/queries/total/answer")["rows"] == [{"n": 2}]
    rows = sorted(hub.get("/v1/queries/refused/results")["rows"], key=lambda row: int(row["position"]))
    assert [row["reason"].partition(", more than")[0] for row in rows] == [
        'column v: "x" is not a BIGINT',
        "event time at is null",
        "event time at is 9000-01-01T00:00:00Z",
        'column v: "?" is not a BIGINT',
    ]
    assert (rows[0]["text"], rows[3]["text"]) == (BAD_CELL, HALF)
    assert json.loads(rows[1]["text"]) == {"k": "c", "v": 3, "at": None}


def test_rows_of_which_none_fits_are_rejects_too(hub: Served) -> None:
    status, answer = hub.post("/v1/streams/s/rows", "k,v,at\na,many,2024-01-01\n", *CSV)
    assert (status, answer["accepted"], answer["rejected"]) == (200, 0, 1)
    status, answer = hub.post("/v1/streams/s/rows", "k,at\na,2024-01-01\nb,2024-01-02\n", *CSV)
    assert (status, answer["accepted"], answer["rejected"]) == (200, 0, 2)
    until(lambda: counted(hub) == (0, 3))
    assert len(rejects_of(hub)) == 3


def test_a_large_push_has_its_rejects_in_place_after_a_kill(tmp_path: Path) -> None:
    lines = [GOOD.replace('"v":1', f'"v":{number}') for number in range(20_000)]
    lines[5_000], lines[19_999] = BAD_CELL, BAD_CELL.replace('"x"', '"y"')
    with served(tmp_path / "home") as running:
        assert running.post("/v1/statements", STREAM + TOTAL + REFUSED)[0] == 200
        assert running.post("/v1/epochs/pause", "")[0] == 200
        body = tmp_path / "body"
        body.write_text("\n".join(lines))
        status, text = running.curl(
            "/v1/streams/s/rows", "-X", "POST", "--data-binary", f"@{body}", *JSON_LINES
        )
        assert (status, json.loads(text)["accepted"]) == (200, 19_998), text
        running.process.send_signal(signal.SIGKILL)
        running.process.wait()
    with served(tmp_path / "home") as running:
        until(lambda: counted(running) == (19_998, 2))
        assert rejects_of(running) == ['column v: "x" is not a BIGINT', 'column v: "y" is not a BIGINT']
        assert running.post("/v1/statements", "CREATE QUERY largest AS SELECT MAX(v) AS top FROM s")[0] == 200
        until(lambda: running.get("/v1/queries/largest/answer")["rows"] == [{"top": 19_998}])


def test_a_client_in_python_has_the_rejects_of_a_hub_of_its_own(hub: Served, tmp_path: Path) -> None:
    late = datetime.now(UTC) + timedelta(days=9)
    table = pa.table(
        {"k": ["a", "b", "c"], "v": [1, 2, 3], "at": [datetime(2024, 1, 1, tzinfo=UTC), None, late]}
    )
    with hr.connect(hub.url) as remote:
        assert remote.push("s", table) == 3
    until(lambda: counted(hub) == (1, 2))
    with hr.open(tmp_path / "own", local=True) as own:
        own.execute(STREAM + REFUSED)
        assert own.push("s", table) == 3
        own.run_once()
        texts = own.query("refused").history().column("text").to_pylist()
    assert [row["text"] for row in hub.get("/v1/queries/refused/results")["rows"]] == texts


def test_a_key_that_was_used_for_other_rows_is_a_conflict(hub: Served) -> None:
    def push(rows: str, key: str) -> tuple[int, Any]:
        return hub.post("/v1/streams/s/rows", rows, *JSON_LINES, "-H", f"Idempotency-Key: {key}")

    long = "k" * 200
    for key in ("a1", long):
        assert [push(GOOD, key)[0] for _ in range(2)] == [200, 200]
        for other in (f"{GOOD}\n{GOOD}", BAD_CELL, f"{GOOD}\n{BAD_CELL}"):
            status, problem = push(other, key)
            assert (status, problem["error"]["message"], problem["error"]["remedy"]) == (
                409,
                f"the Idempotency-Key '{key}' was used for another request",
                "Use a new key for each.",
            )
    assert (push(GOOD, long + "k")[0], push(BAD_CELL, "a2")[0], push(GOOD, "a2")[0]) == (400, 200, 409)
    until(lambda: counted(hub) == (2, 1))
    numbered = ("-H", "Producer: mine", "-H", "Sequence: 7")
    assert hub.post("/v1/streams/s/rows", GOOD, *JSON_LINES, *numbered)[0] == 200
    status, problem = hub.post("/v1/streams/s/rows", f"{GOOD}\n{GOOD}", *JSON_LINES, *numbered)
    assert (status, "batch 7 of the producer 'mine'" in problem["error"]["message"]) == (400, True)
