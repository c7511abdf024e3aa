"""Metrics for Prometheus: counts of what is committed, read from the home at each scrape, followers, and durations of epochs
and HTTP requests; also the middleware that measures the requests.

Labels are streams, stages, routes and statuses, whose number is bounded; queries are counted, not named.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.catalog.definitions import QUERY_STATES
from headrace.observation import EpochObservation
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan.adaptive.overload_control import overload_report
from headrace.runtime.repair.repair_report import repairs_by_query
from headrace.server.connections.encoded_paths import CONVERTOR
from headrace.server.connections.follower_groups import KINDS
from headrace.time import BEGINNING

_MICROSECONDS = 1e6
_EPOCH_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class HubMetrics:
    """The metrics of one hub. `followers` has, at each scrape, how many there are by the kind of their connection."""

    def __init__(self, hub: Hub, followers: Mapping[str, int] = MappingProxyType({})) -> None:
        self._hub, self._followers = hub, followers
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._epochs = Histogram(
            "headrace_epoch_seconds",
            "Wall clock of an epoch, by stage.",
            ["stage"],
            registry=self._registry,
            buckets=_EPOCH_BUCKETS,
        )
        self._requests = Histogram(
            "headrace_http_request_seconds",
            "Time until a response began.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        hub.on_epoch(self.epoch)

    def text(self) -> bytes:
        """The exposition format of Prometheus."""
        return generate_latest(self._registry)

    def epoch(self, seen: EpochObservation) -> None:
        """Measure an epoch."""
        for stage, seconds in seen.seconds.items():
            self._epochs.labels(stage).observe(seconds)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Measure a request."""
        self._requests.labels(method, route, str(status)).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Counters of all that is committed."""
        hub = self._hub
        manifest = hub.home.latest()
        yield CounterMetricFamily("headrace_epochs", "Committed epochs.", value=manifest.epoch)
        yield CounterMetricFamily(
            "headrace_epoch_failures",
            "Attempts at an epoch that failed, since this process started.",
            value=hub.loop.supervisor.failed,
        )
        pushes = CounterMetricFamily(
            "headrace_pushes_without_room",
            "Pushes that had to wait for room since this process started, and those of them that were refused.",
            labels=["outcome"],
        )
        for outcome, count in hub.backpressure.as_dict().items():
            pushes.add_metric([outcome], count)
        yield pushes
        yield GaugeMetricFamily(
            "headrace_state_bytes",
            "State of all queries on disk.",
            value=sum(run.bytes for run in manifest.state),
        )
        yield GaugeMetricFamily("headrace_state_runs", "Files of state.", value=len(manifest.state))
        yield self._queries()
        following = GaugeMetricFamily(
            "headrace_followers", "Connections that follow a query's results.", labels=["connection"]
        )
        for kind in KINDS:
            following.add_metric([kind], self._followers.get(kind, 0))
        yield following
        yield from self._quality()
        yield from self._repairs()
        yield from self._streams()

    def _queries(self) -> Metric:
        states = Counter(query.definition.state for query in self._hub.catalog.queries.values())
        family = GaugeMetricFamily("headrace_queries", "Standing queries.", labels=["state"])
        for state in QUERY_STATES:
            family.add_metric([state], states[state])
        return family

    def _quality(self) -> Iterator[Metric]:
        report = overload_report(self._hub.home.latest())
        if report is None:
            return
        figures = {
            "utility": ("Sum of the utility of all queries WITH QOS.", report.utility),
            "best_utility": ("The number of queries WITH QOS: their utility at best.", len(report.worth)),
            "load_ratio": ("Part of the time that rows take at the present rates.", report.load),
            "demand_ratio": ("The same if no row was dropped.", report.demand),
            "sketched_queries": (
                "Queries whose rows are sketched until there is time again.",
                len(report.sketched),
            ),
        }
        for name, (meaning, value) in figures.items():
            yield GaugeMetricFamily(f"headrace_{name}", meaning, value=value)
        yield CounterMetricFamily(
            "headrace_share_changes", "Changes of the shares of rows that queries see.", value=report.changes
        )

    def _repairs(self) -> Iterator[Metric]:
        hub = self._hub
        reports = repairs_by_query(hub.home.latest(), hub.plan, hub.catalog)
        if not reports:
            return
        family = GaugeMetricFamily(
            "headrace_repair_windows",
            "Windows emitted from samples, by query WITH SHEDDING (repair): waiting, repaired, and lost to the archive's retention.",
            labels=["query", "state"],
        )
        for name, report in reports.items():
            for state in ("waiting", "repaired", "lost"):
                family.add_metric([name, state], getattr(report, state))
        yield family

    def _streams(self) -> Iterator[Metric]:
        manifest, now = self._hub.home.latest(), self._hub.loop.engine.clock()
        committed = {
            stream.name: manifest.stream(stream.name)
            for stream in self._hub.catalog.streams.values()
            if stream.name in manifest.streams
        }
        counters = {
            "rows": "Accepted rows, late ones included.",
            "late": "Rows below the watermark of their epoch.",
            "rejected": "Rows that did not fit the stream.",
            "shed": "Rows that queries WITH SHEDDING did not get.",
        }
        for name, meaning in counters.items():
            family = CounterMetricFamily(f"headrace_stream_{name}", meaning, labels=["stream"])
            for stream, progress in committed.items():
                family.add_metric([stream], getattr(progress, name))
            yield family
        lag = GaugeMetricFamily(
            "headrace_stream_watermark_lag_seconds", "The clock minus the watermark.", labels=["stream"]
        )
        for stream, progress in committed.items():
            if progress.punctuation != BEGINNING:
                lag.add_metric([stream], (now - progress.punctuation) / _MICROSECONDS)
        yield lag


class Measured:
    """An application whose requests are measured, until their response begins."""

    def __init__(self, app: ASGIApp, metrics: HubMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()

        async def measured(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "none").replace(CONVERTOR, "")
                seconds = time.perf_counter() - started
                self._metrics.request(scope["method"], route, message["status"], seconds)
            await send(message)

        await self._app(scope, receive, measured)
