"""Traces of epochs: a span for each with its stages, exported to a real collector's address; and the log as JSON."""

from __future__ import annotations

import json
import logging
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path

import pytest

from headrace.observation import EpochFailure, EpochObservation
from headrace.server.monitoring.json_log import log_as_json, log_failure
from headrace.server.monitoring.tracing import Stage, stages_of, trace_epochs
from headrace.server.open_or_connect import open_hub
from tests.cli.building import headrace
from tests.server.serving import STREAM, served

FAILURE = EpochFailure(7, 1, 5, "StoreError", "the disk is full\n  Make room.", 1, 0, 2.0)


def test_stages_of_tasks_are_within_the_execution_and_publishing_follows_it() -> None:
    seconds = {"scan": 0.2, "fold": 0.1, "state": 0.3, "execute": 0.5, "publish": 0.25}
    assert list(stages_of(EpochObservation(1, "epoch", seconds=seconds))) == [
        Stage("execute", 0, 500_000_000),
        Stage("scan", 0, 200_000_000, "execute"),
        Stage("fold", 200_000_000, 300_000_000, "execute"),
        Stage("state", 300_000_000, 500_000_000, "execute"),  # of another task than the scan: cut at the end
        Stage("publish", 500_000_000, 750_000_000),
    ]


def test_an_epoch_is_a_span_with_its_stages_however_many_queries_there_are(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="of the optional dependencies traces")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(STREAM)
        for number in range(30):
            hub.register("SELECT k FROM s", f"q{number}")
        hub.loop.drain()
        trace_epochs(hub, provider.get_tracer("test"))
        hub.push("s", [{"k": "a", "v": 1, "at": "2024-01-01T00:00:01Z"}])
        assert hub.loop.drain() == 1
    spans = {span.name: span for span in exporter.get_finished_spans()}
    epoch = spans["epoch"]
    assert epoch.parent is None
    assert (epoch.attributes["headrace.rows"], epoch.attributes["headrace.results"]) == (1, 30)
    assert len(epoch.attributes) == 10
    assert {"execute", "publish", "scan"} <= spans.keys()
    assert len(exporter.get_finished_spans()) <= 7
    for name, parent in (("execute", "epoch"), ("publish", "epoch"), ("scan", "execute")):
        assert spans[name].parent.span_id == spans[parent].context.span_id
        assert (
            spans[parent].start_time
            <= spans[name].start_time
            <= spans[name].end_time
            <= spans[parent].end_time
        )


@pytest.fixture
def collector() -> Iterator[tuple[str, list[str]]]:
    paths = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", paths
        server.shutdown()


def test_a_served_hub_sends_its_traces_and_the_last_ones_when_it_ends(
    tmp_path: Path, collector: tuple[str, list[str]]
) -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http", reason="of the optional dependencies traces"
    )
    url, paths = collector
    with served(tmp_path / "home", "--traces", url) as hub:
        assert hub.post("/v1/statements", STREAM)[0] == 200
        hub.post("/v1/streams/s/rows", '{"k":"a","v":1,"at":"2024-01-01T00:00:01Z"}')
        while not hub.get("/v1/epochs")["epochs"]:
            pass
    assert paths
    assert set(paths) == {"/v1/traces"}


def test_what_is_missing_for_traces_is_said(tmp_path: Path) -> None:
    try:
        import opentelemetry.sdk  # noqa: F401
    except ImportError:
        done = headrace(
            "serve", "--home", tmp_path / "home", "--port", "0", "--no-auth", "--traces", "http://127.0.0.1:1"
        )
        assert (done.returncode, "pip install 'headrace[traces]'" in done.stderr) == (2, True)
    done = headrace("serve", "--home", tmp_path / "home", "--port", "0", "--no-auth", "--traces", "localhost")
    assert (done.returncode, "is no address of a collector" in done.stderr) == (2, True)


def test_the_log_is_lines_of_json_with_the_trace_of_a_fault() -> None:
    root, out = logging.getLogger(), StringIO()
    before = root.handlers[:], logging.getLogger("headrace").level
    try:
        log_as_json(out, lambda: 1_700_000_000_000_000)
        log_failure(FAILURE)
        try:
            int("unexpected")
        except ValueError:
            logging.getLogger("headrace.server").exception("a request failed")
    finally:
        root.handlers[:] = before[0]
        logging.getLogger("headrace").setLevel(before[1])
        logging.captureWarnings(capture=False)
    failed, fault = map(json.loads, out.getvalue().splitlines())
    assert (failed["level"], failed["epoch"], failed["attempt"]) == ("warning", 7, 1)
    assert failed["message"].startswith("epoch 7 failed: the disk is full")
    assert (fault["at"], fault["level"], fault["logger"]) == (
        "2023-11-14T22:13:20Z",
        "error",
        "headrace.server",
    )
    assert "ValueError: invalid literal" in fault["trace"]


def test_a_served_hub_logs_as_json(tmp_path: Path) -> None:
    """A line that is no HTTP makes uvicorn warn."""
    with served(tmp_path / "home", "--log", "json") as hub:
        port = hub.url.rpartition(":")[2]
        subprocess.run(
            ["bash", "-c", f"printf 'nonsense\\r\\n\\r\\n' > /dev/tcp/127.0.0.1/{port}"], check=True
        )
        assert hub.process.stderr is not None
        line = json.loads(hub.process.stderr.readline())
        assert (line["level"], line["message"]) == ("warning", "Invalid HTTP request received.")
