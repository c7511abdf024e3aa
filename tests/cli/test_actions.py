"""Actions of commands: a run that ends has delivered what its receivers took, and one that is stopped waits for none."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from tests.cli.building import headrace
from tests.runtime.delivery.actions.receiving import hook, until
from tests.server.serving import served

STREAM = "CREATE STREAM s (k STRING, v BIGINT) USING {using};"
QUERY = "CREATE QUERY q AS SELECT k, v FROM s THEN CALL '{url}' WITH ({options});"


def test_a_run_that_ends_has_delivered(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("k,v\na,1\nb,2\n")
    script = tmp_path / "script.cql"
    with hook() as receiver:
        stream = STREAM.format(using=f"csv OPTIONS (path '{tmp_path}/rows.csv', header 'true')")
        script.write_text(stream + QUERY.format(url=receiver.url, options="batch '1'"))
        done = headrace("run", script, "--once", "--home", tmp_path / "home")
        assert done.returncode == 0, done.stderr
        assert receiver.values == [1, 2]
        assert headrace("run", script, "--once", "--home", tmp_path / "home").returncode == 0
        assert receiver.values == [1, 2]


def test_a_service_that_is_stopped_waits_for_no_receiver_and_the_next_run_delivers(tmp_path: Path) -> None:
    home, release = tmp_path / "home", threading.Event()
    with hook([500], before=lambda number: number == 1 and release.wait()) as receiver:  # type: ignore[arg-type,return-value]
        options = "timeout '1 HOUR', wait '0.001 SECONDS'"
        with served(home) as hub:
            script = STREAM.format(using="push") + QUERY.format(url=receiver.url, options=options)
            assert hub.post("/v1/statements", script)[0] == 200
            assert hub.post("/v1/streams/s/rows", '{"k": "a", "v": 1}')[0] == 200
            until(lambda: len(receiver.calls) == 2)
            described = hub.get("/v1/queries/q")
            assert described["actions"] == [
                f"CALL {receiver.url} WITH (timeout '1 HOUR', wait '0.001 SECONDS')"
            ]
        states = [json.loads(line) for line in (home / "epochs.jsonl").read_text().splitlines()]
        assert [line["state"] for line in states if line["kind"] == "sink"][-1] == "closed"
        release.set()
        with served(home):
            until(lambda: len(receiver.calls) == 3)
        assert len({call.key for call in receiver.calls}) == 1
