"""OpenTelemetry traces of epochs: a span for each committed epoch with a span for each of its stages, and one for each
attempt that failed. An epoch's spans are made of its measurements after it is committed, so that tracing costs the epoch
itself nothing; their number and attributes do not grow with streams and queries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from headrace import __version__
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.observation import EpochFailure, EpochObservation
from headrace.runtime.hub.hub import Hub

_NANOSECONDS: Final = 1e9
_OF_TASKS: Final = ("scan", "fold", "state", "write")
"""Stages of the task that took longest, in their order, within `execute`."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of an epoch, in nanoseconds since its beginning; `parent`: the stage that it is a part of."""

    name: str
    start: int
    end: int
    parent: str | None = None


def stages_of(seen: EpochObservation) -> Iterator[Stage]:
    """The stages of an epoch, each after the one it is a part of."""
    lasted = {name: int(seconds * _NANOSECONDS) for name, seconds in seen.seconds.items()}
    executed = lasted.get("execute", 0)
    yield Stage("execute", 0, executed)
    at = 0
    for name in _OF_TASKS:
        if name in lasted:
            end = min(at + lasted[name], executed)
            yield Stage(name, at, end, "execute")
            at = end
    yield Stage("publish", executed, executed + lasted.get("publish", 0))


@dataclass(frozen=True, slots=True)
class EpochTraces:
    """Makes spans of epochs with a tracer of OpenTelemetry."""

    tracer: Any
    nanoseconds: Callable[[], int] = time.time_ns

    def epoch(self, seen: EpochObservation) -> None:
        """An epoch was committed."""
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 - of an optional part

        stages = list(stages_of(seen))
        start = self.nanoseconds() - stages[-1].end
        attributes = {
            "headrace.epoch": seen.epoch,
            "headrace.kind": seen.kind,
            "headrace.rows": seen.rows,
            "headrace.bytes": seen.bytes,
            "headrace.late": seen.late,
            "headrace.rejected": seen.rejected,
            "headrace.results": sum(operator.results for operator in seen.operators.values()),
            "headrace.operators": len(seen.operators),
            "headrace.streams": len(seen.streams),
            "headrace.state_bytes": seen.state_bytes,
        }
        epoch = self.tracer.start_span("epoch", start_time=start, attributes=attributes)
        contexts: dict[str | None, Any] = {None: set_span_in_context(epoch)}
        for stage in stages:
            span = self.tracer.start_span(stage.name, contexts[stage.parent], start_time=start + stage.start)
            contexts[stage.name] = set_span_in_context(span)
            span.end(start + stage.end)
        epoch.end(start + stages[-1].end)

    def failure(self, failure: EpochFailure) -> None:
        """An attempt at an epoch failed."""
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - of an optional part

        at = self.nanoseconds()
        attributes = {
            "headrace.epoch": failure.epoch,
            "headrace.attempt": failure.attempt,
            "exception.type": failure.error,
            "exception.message": failure.message[:1000],
        }
        span = self.tracer.start_span("epoch", start_time=at, attributes=attributes)
        span.set_status(Status(StatusCode.ERROR, failure.message.partition("\n")[0][:200]))
        span.end(at)


def trace_epochs(hub: Hub, tracer: Any) -> None:
    """Trace the epochs of a hub from now on with a program's own tracer."""
    traces = EpochTraces(tracer)
    hub.on_epoch(traces.epoch)
    hub.on_failure(traces.failure)


def export_traces(hub: Hub, endpoint: str) -> None:
    """Send traces of a hub's epochs to a collector (OTLP over HTTP), until the hub is closed.

    Raises `UserError` where OpenTelemetry is not installed, or the address is none.
    """
    if not endpoint.startswith(("http://", "https://")):
        raise UserError(f"'{endpoint}' is no address of a collector", remedy="Write http://HOST:4318.")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        raise UserError(
            "traces need OpenTelemetry, which is not installed", remedy="pip install 'headrace[traces]'"
        ) from None
    about = {"service.name": "headrace", "service.version": __version__, "headrace.home": str(hub.path)}
    provider = TracerProvider(resource=Resource.create(about))
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace_epochs(hub, provider.get_tracer("headrace", __version__))
    hub.on_close(provider.shutdown)
