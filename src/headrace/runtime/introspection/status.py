"""What `hub.status()` says: how far everything is, and what the newest epoch measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.connectors.records.ingest_record import SourceChanged
from headrace.runtime.plan import derived_streams

if TYPE_CHECKING:
    from headrace.runtime.hub.hub import Hub


def status(hub: Hub) -> dict[str, Any]:
    """The newest epoch's measurements and each stream's totals, as plain values."""
    manifest, catalog = hub.home.latest(), hub.catalog
    return {
        "epoch": manifest.epoch,
        "running": hub.loop.is_running,
        "streams": {
            stream.name: manifest.streams[stream.name].as_json() if stream.name in manifest.streams else {}
            for stream in catalog.streams.values()
        },
        "queries": {
            query.definition.name: None if progress is None else progress.as_json()
            for query in catalog.queries.values()
            for progress in (manifest.operators.get(query.operator_id),)
        },
        "unread": {name: str(found) for name, found in unread(hub).items()},
        "rejected": dict(manifest.facts.get("rejected", {})),
        "closing_rejected": {name: len(told) for name, told in hub.closing_rejects.items()},
        "state_bytes": sum(run.bytes for run in manifest.state),
        "synopsis_budget": hub.synopsis_bytes,
        "synopses": synopses(hub),
        "sinks": {sink["sink"]: sink for sink in hub.open_sinks.report()},
        "failures": hub.loop.supervisor.as_status(),
        "last_epoch": hub.last.as_dict() if hub.last is not None else None,
    }


def unread(hub: Hub) -> dict[str, SourceChanged]:
    """Queries whose past cannot be read, and what was found in its place."""
    owners = {derived_streams.owner_of(operator): found for operator, found in hub.loop.engine.unread.items()}
    named = {query.operator_id: query.definition.name for query in hub.catalog.queries.values()}
    return {named[owner]: found for owner, found in owners.items() if owner in named}


def synopses(hub: Hub) -> dict[str, dict[str, int]]:
    """Of each query with synopses: how many bytes each may take for one group."""
    operators = hub.loop.engine.plan.operators
    told = {
        query.definition.name: dict(operators[query.operator_id].synopsis_bytes)
        for query in hub.catalog.queries.values()
        if query.operator_id in operators
    }
    return {name: sizes for name, sizes in told.items() if sizes}
