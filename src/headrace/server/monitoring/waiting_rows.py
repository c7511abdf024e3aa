"""How many rows of each stream wait for the next epochs."""

from __future__ import annotations

from headrace.runtime.hub.hub import Hub


def waiting_rows(hub: Hub) -> dict[str, int]:
    """Rows by stream; of files that are not read yet none are counted."""
    intake = hub.loop.engine.intake
    return {
        stream.name: sum(record.rows or 0 for record in tuple(intake.waiting(stream.name)))
        for stream in hub.catalog.streams.values()
    }
