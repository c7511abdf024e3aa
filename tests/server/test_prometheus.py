"""A real Prometheus scrapes `headrace serve`, and evaluates every panel of the dashboard and every alert of `dashboards/`."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.server.metrics import HubMetrics
from tests.server.serving import STREAM, TOTAL, Served, served

DASHBOARDS = Path(__file__).parents[2] / "dashboards"
DASHBOARD = json.loads((DASHBOARDS / "grafana.json").read_text(encoding="utf-8"))
ALERTS = (DASHBOARDS / "alerts.yml").read_text(encoding="utf-8")
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None or PROMTOOL is None, reason="needs prometheus, which this machine does not have"
)
PANELS = [
    (panel["title"], target["expr"], target["legendFormat"])
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
]
ROWS = '{"k":"a","v":1,"at":"2024-01-01T00:00:01Z"}\n'
PUBLISHED = {
    "dashboard": "annotations description editable fiscalYearStartMonth gnetId graphTooltip id links liveNow panels preload refresh"
    " revision schemaVersion snapshot tags templating time timepicker timezone title uid version weekStart",
    "panel": "autoMigrateFrom cacheTimeout datasource description fieldConfig gridPos hideTimeOverride id interval libraryPanel links"
    " maxDataPoints maxPerRow options pluginVersion queryCachingTTL repeat repeatDirection targets timeCompare timeFrom timeShift"
    " title transformations transparent type",
    "variable": "allValue allowCustomValue current datasource description enableGroupBy hide includeAll label multi name options query"
    " refresh regex regexApplyTo skipUrlSync sort staticOptions staticOptionsOrder type valuesFormat",
    "field": "actions color custom decimals description displayName displayNameFromDS filterable links mappings max min noValue path"
    " thresholds unit writeable",
}
"""The properties that Grafana's types have in `@grafana/schema` 13.2.3 (`raw/dashboard/x`)."""


def exposed(home: Path) -> dict[str, set[str]]:
    """Every name of a sample in /metrics, with its labels, after an epoch and a request."""
    with Hub(home, LocalExecutor()) as hub:
        metrics = HubMetrics(hub)
        hub.execute(STREAM)
        hub.push("s", [{"k": "a", "v": 1, "at": 5}])
        hub.loop.drain()
        metrics.request("GET", "/v1/status", 200, 0.001)
        found: dict[str, set[str]] = {}
        for family in text_string_to_metric_families(metrics.text().decode()):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
        return found


def test_every_metric_and_label_of_the_dashboard_and_the_alerts_is_exposed(tmp_path: Path) -> None:
    names = exposed(tmp_path / "home")
    used = {name for text in (json.dumps(DASHBOARD), ALERTS) for name in re.findall(r"\bheadrace_\w+", text)}
    assert len(used) > 10
    assert used <= names.keys()
    assert {
        name.removesuffix("_bucket").removesuffix("_sum") for name in names if not name.endswith("_created")
    } <= {name.removesuffix("_bucket").removesuffix("_sum") for name in used} | {
        "headrace_epoch_seconds_count"
    }, "a metric that no panel shows"
    for title, expr, legend in PANELS:
        labels = set(re.findall(r"{{(\w+)}}", legend))
        grouped = set(re.findall(r"by \(([^)]*)\)", expr)[0].split(", ") if " by (" in expr else [])
        assert labels <= grouped, title
        for name in re.findall(r"headrace_\w+", expr):
            assert grouped <= names[name] | {"le"}, title


def test_the_dashboard_has_what_grafana_publishes_types_for() -> None:
    parts = [
        ("dashboard", DASHBOARD),
        *(("panel", panel) for panel in DASHBOARD["panels"]),
        *(("field", panel["fieldConfig"]["defaults"]) for panel in DASHBOARD["panels"]),
        *(("variable", variable) for variable in DASHBOARD["templating"]["list"]),
    ]
    for kind, part in parts:
        assert part.keys() <= {*PUBLISHED[kind].split()}, part
    currents = [
        variable.get("current", {"text": "", "value": ""}) for variable in DASHBOARD["templating"]["list"]
    ]
    assert all({"text", "value"} <= current.keys() for current in currents)


def test_panels_do_not_lie_over_each_other() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@contextmanager
def scraping(folder: Path, hub: Served) -> Iterator[str]:
    """A Prometheus with the configuration of `dashboards/`, but for the address, the token and the pace; its URL."""
    config = (DASHBOARDS / "prometheus.yml").read_text(encoding="utf-8")
    config = config.replace("127.0.0.1:8474", hub.url.removeprefix("http://")).replace("10s", "100ms")
    (folder / "prometheus.yml").write_text(config)
    (folder / "alerts.yml").write_text(ALERTS)
    (folder / "headrace.token").write_text(hub.token or "")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert PROMETHEUS is not None
    process = subprocess.Popen(
        [
            PROMETHEUS,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=60)


def asked(url: str, path: str, **parameters: str) -> Any:
    with urllib.request.urlopen(
        f"{url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=30
    ) as response:
        answer = json.load(response)
    assert answer["status"] == "success", answer
    return answer["data"]


def value(url: str, expr: str) -> float | None:
    """The value of an expression with one series; None while there is none."""
    try:
        found = asked(url, "query", query=expr)["result"]
    except (OSError, urllib.error.URLError):  # it has not started yet
        return None
    return float(found[0]["value"][1]) if found else None


def wait_for(url: str, expr: str, wanted: float) -> None:
    end = time.monotonic() + 60
    while (seen := value(url, expr)) != wanted:
        assert time.monotonic() < end, f"{expr} is {seen}, not {wanted}"
        time.sleep(0.02)


@needs_prometheus
@pytest.mark.timeout(300)
def test_prometheus_scrapes_a_hub_and_evaluates_every_panel_and_alert(tmp_path: Path) -> None:
    script = tmp_path / "script.cql"
    script.write_text(STREAM + TOTAL)
    with served(tmp_path / "home", str(script), auth=True) as hub, scraping(tmp_path, hub) as url:
        wait_for(url, 'up{job="headrace"}', 1)
        for count in (1, 2, 3):
            status, answer = hub.curl(
                "/v1/streams/s/rows", "-X", "POST", "--data-binary", ROWS * 2, token=hub.token
            )
            assert status == 200, answer
            wait_for(url, 'headrace_stream_rows_total{stream="s"}', 2 * count)
        wait_for(url, 'headrace_queries{state="live"}', 1)
        hub.curl("/v1/statements", "-X", "POST", "--data-binary", "PAUSE QUERY total", token=hub.token)
        wait_for(url, 'headrace_queries{state="paused"}', 1)
        wait_for(url, "min(count_over_time(headrace_epochs_total[1m])) > bool 5", 1)
        for title, expr, _ in PANELS:
            shown = expr.replace("$__rate_interval", "1m").replace("$instance", ".*")
            result = asked(url, "query", query=shown)["result"]
            assert result, f"the panel {title!r} shows nothing: {shown}"
        rules = asked(url, "rules")["groups"][0]["rules"]
        assert len(rules) == ALERTS.count("- alert:")
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
        assert asked(url, "label/stream/values") == ["s"]


@needs_prometheus
def test_promtool_accepts_the_exposition_and_the_rules(tmp_path: Path) -> None:
    assert PROMTOOL is not None
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        metrics = HubMetrics(hub)
        hub.execute(STREAM)
        hub.push("s", [{"k": "a", "v": 1, "at": 5}])
        hub.loop.drain()
        linted = subprocess.run([PROMTOOL, "check", "metrics"], input=metrics.text(), capture_output=True)
    assert (linted.returncode, linted.stdout, linted.stderr) == (0, b"", b"")
    (tmp_path / "headrace.token").write_text("t")
    for name in ("prometheus.yml", "alerts.yml"):
        shutil.copy(DASHBOARDS / name, tmp_path)
    checked = subprocess.run(
        [PROMTOOL, "check", "config", str(tmp_path / "prometheus.yml")], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "6 rules found" in checked.stdout
