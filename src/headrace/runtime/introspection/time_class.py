"""Class of a query by the rows that it reads: historical (all archived when it was registered), live (none), or hybrid, with the entry
of the archive at which it continues with live rows. Source: OSCAR, section 2.
"""

from __future__ import annotations

from headrace.algebra.query import Bounds, Query, StreamScan, every_node
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, FOREVER, Instant


def time_class_of(
    manifest: Manifest, query: Query, *, from_now: bool = False, is_live: bool = False
) -> list[str]:
    """The line of EXPLAIN with the class as if the query were registered now; `is_live` if it has read the archive. Before
    the first row there is none: every query is live.
    """
    names = [node.name for node in every_node(query) if isinstance(node, StreamScan)]
    archived = [
        name for name in dict.fromkeys(names) if name in manifest.streams and manifest.length_of(name)
    ]
    if not archived:
        return []
    streams = [manifest.stream(name) for name in archived]
    now = max(stream.greatest for stream in streams)
    begin, end = _between(query, now)
    if end < min(stream.punctuation for stream in streams):
        return ["  historical: every row between BEGIN and END is archived"]
    if from_now or begin > now:
        return ["  live: rows that arrive from now on"]
    if is_live:
        return [f"  hybrid: has read every archived row of {', '.join(archived)}, and reads live rows"]
    until = ", ".join(f"{name} to entry {manifest.length_of(name):,}" for name in archived)
    return [f"  hybrid: the archive of {until}, and live rows from there"]


def _between(query: Query, now: Instant) -> tuple[Instant, Instant]:
    """The first and the last instant of BEGIN … END; an end that moves with NOW has no limit."""
    bounds = next((node for node in every_node(query) if isinstance(node, Bounds)), None)
    if bounds is None:
        return BEGINNING, FOREVER
    begin = bounds.begin if isinstance(bounds.begin, int) else now - bounds.begin.duration
    return begin, bounds.end if isinstance(bounds.end, int) else FOREVER
