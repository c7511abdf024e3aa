"""Committed runs of results as input of the queries over them: those that these have not read, and those that a backfill
reads again, as it does records of sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.catalog.definitions import StreamDefinition
from headrace.runtime.backfill.archive_entries import ArchiveEntry
from headrace.runtime.home.home import Home
from headrace.runtime.ingest.admission import Pending
from headrace.runtime.messages.result_entry import answered
from headrace.runtime.plan.derived_streams import USING, operator_of
from headrace.runtime.results.result_log import retained_entries
from headrace.store.logs.manifest import Manifest
from headrace.store.maintenance.retention_classes import PART


def waiting(home: Home, manifest: Manifest, stream: StreamDefinition) -> list[Pending]:
    """Result runs that the stream's readers have not seen."""
    start = manifest.stream(stream.name).next
    return [
        pending(stream, index, entry, answered(entry, home.store)[operator_of(stream)][0])
        for index, entry in retained_entries(home, manifest, start)
        if operator_of(stream) in answered(entry, home.store)
    ]


def pending(stream: StreamDefinition, index: int, entry: Mapping[str, Any], rows: int) -> Pending:
    """An entry of the results list, with so many rows of the stream."""
    return Pending(index, stream.name, rows, 0, _record(stream, entry))


def read_again(
    home: Home, manifest: Manifest, stream: StreamDefinition, chunk: Sequence[ArchiveEntry]
) -> Mapping[int, Mapping[str, Any]]:
    """The records of archive entries, by ordinal, for reading them in place: by index in the list of results where these are the input."""
    ordinals = {ordinal for entry in chunk for ordinal in entry.ordinals}
    if stream.using != USING:
        is_in_place = stream.archive == "in place" and ordinals
        listed = home.ingest_log.read(min(ordinals)) if is_in_place else ()
        return {ordinal: entry for ordinal, entry in listed if ordinal in ordinals}
    return {
        index: _record(stream, entry)
        for index, entry in retained_entries(home, manifest, min(ordinals, default=0))
        if operator_of(stream) in answered(entry, home.store)
    }


def _record(stream: StreamDefinition, entry: Mapping[str, Any]) -> dict[str, Any]:
    part = {PART: entry[PART]} if PART in entry else {}
    return {
        "results": entry["name"],
        "operator": operator_of(stream),
        "shift": int(stream.options["shift"]),
        **part,
    }
