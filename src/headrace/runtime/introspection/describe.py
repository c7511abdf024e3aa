"""DESCRIBE EXTENDED: the properties and progress of a stream or query as a table; what is reduced of archives; EXPLAIN's
backfill lines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.catalog.definitions import QueryDefinition, StreamDefinition
from headrace.catalog.reductions import Reduction
from headrace.runtime.home.home import Home
from headrace.runtime.reduction.segments import ARCHIVE, Copy, Segment, copy_of, segments_of
from headrace.store.logs.committed import CommittedStream, OperatorProgress
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, Instant, render_duration, render_instant

if TYPE_CHECKING:
    from headrace.runtime.reduction.vacuum import Vacuum


def progress_table(
    stream: StreamDefinition, committed: CommittedStream, reduced: Mapping[str, Any] | None
) -> pa.Table:
    """Properties and their values as text; an unknown value is NULL. `reduced` is what was reduced of the stream's archive."""
    return _table([*_clauses(stream), *_progress_lines(stream, committed), *_reduced_lines(reduced)])


def reduced_archives(
    home: Home, manifest: Manifest, streams: Collection[StreamDefinition]
) -> dict[str, dict[str, Any]]:
    """Stream whose archive is reduced, or has copies → its reduced segments, their rows, how many of these are stored, what waits to be
    freed, the limit of bytes and how many are stored where there is one; and the same of each copy, with the entries that it lacks.
    """
    from headrace.runtime.reduction.vacuum import Vacuum  # noqa: PLC0415 - with the figures of an archive

    vacuum = Vacuum(home, manifest, lambda *_: ())
    reduced = {}
    for stream in streams:
        segments = segments_of(manifest, stream.name)
        if stream.reduce is None and not segments and not stream.reducers:
            continue
        reduced[stream.name] = {
            **_kept(segments),
            "free": asdict(vacuum.free(stream)),
            **_load(stream.reduce, vacuum.stored, stream, ARCHIVE),
            "copies": dict(_copies(home, manifest, stream, vacuum)),
        }
    return reduced


def _kept(segments: Sequence[Segment]) -> dict[str, Any]:
    return {
        "segments": len(segments),
        "rows": sum(segment.rows for segment in segments),
        "stored": sum(segment.stored for segment in segments),
    }


def _load(
    reduction: Reduction | None,
    stored: Callable[[StreamDefinition, str], int],
    stream: StreamDefinition,
    reducer: str,
) -> dict[str, Any]:
    """The bytes that are stored, where they have a limit."""
    if reduction is None or reduction.load is None or reduction.load.bytes is None:
        return {}
    return {"bytes": stored(stream, reducer), "limit": reduction.load.bytes}


def _copies(
    home: Home, manifest: Manifest, stream: StreamDefinition, vacuum: Vacuum
) -> Iterator[tuple[str, dict[str, Any]]]:
    length = home.list_of(manifest, f"archive:{stream.name}").length
    for reducer in stream.reducers:
        copy = copy_of(manifest, stream.name, reducer.name.lower()) or Copy(0, ())
        yield (
            reducer.name,
            {
                "reduction": str(reducer.reduction),
                **_kept(copy.segments),
                "behind": length - copy.next,
                **_load(reducer.reduction, vacuum.stored, stream, reducer.name.lower()),
            },
        )


def query_progress_table(query: QueryDefinition, progress: OperatorProgress | None) -> pa.Table:
    """The same of a query; `progress` is its operator's, None before its first epoch."""
    position = progress or OperatorProgress()
    return _table(
        [
            ("query", " ".join(query.text.split())),
            ("answered to", known_instant(position.emitted_to)),
            ("complete since", known_instant(position.complete_since)),
            ("filled from", position.backfilled_from or None),
            *([] if query.failure is None else [("suspended, since it failed", query.failure)]),
        ]
    )


def backfill_lines(progress: OperatorProgress | None) -> Iterator[str]:
    """Lines of EXPLAIN: the source of a window's backfill, and since when windows are complete where some may not be."""
    position = progress or OperatorProgress()
    if position.backfilled_from:
        yield f"  filled from {position.backfilled_from} when its window was set"
    if position.complete_since != BEGINNING:
        yield f"  complete since {render_instant(position.complete_since)}: windows that start earlier lack rows"


def _table(rows: Sequence[tuple[str, str | None]]) -> pa.Table:
    return pa.table(
        {
            "property": pa.array([name for name, _ in rows], pa.string()),
            "value": pa.array([value for _, value in rows], pa.string()),
        }
    )


def _clauses(stream: StreamDefinition) -> Iterator[tuple[str, str | None]]:
    """The progress generators, in the words they were declared with."""
    rule, once = stream.progress, stream.deduplicate
    yield "progressing attribute", stream.event_time or "(time of arrival)"
    yield "progress", _generator(stream)
    yield from (clause for clause in rule.clauses() if clause[0] not in ("slack", "progress"))
    if stream.idle_timeout is not None:
        yield "idle timeout", render_duration(stream.idle_timeout)
    if stream.latency:
        yield "latency", render_duration(stream.latency)
    if stream.blocks > 1:
        drawn = "rows" if stream.blocks_by is None else f"keys of {stream.blocks_by}"
        yield "archive", f"{stream.blocks} random blocks of {drawn}"
    if stream.reduce is not None:
        yield "reduction", str(stream.reduce)
    if once is not None:
        yield "deduplication", f"DEDUPLICATE BY {once}"
    yield from (("constraint", str(constraint)) for constraint in stream.constraints)


def _generator(stream: StreamDefinition) -> str:
    rule = stream.progress
    if stream.punctuated_by is not None:
        return f"PUNCTUATED BY {stream.punctuated_by}"
    if rule.external:
        return "PUNCTUATED EXTERNALLY"
    if rule.behind is not None:
        return f"SLACK {rule.behind} ROWS" if rule.behind else "SLACK 0 ROWS (ordered)"
    if rule.groups and not stream.slack:
        return "(none for the whole stream)"
    return f"SLACK {render_duration(stream.slack)}" if stream.slack else "SLACK 0 SECONDS (ordered)"


def _progress_lines(stream: StreamDefinition, committed: CommittedStream) -> Iterator[tuple[str, str | None]]:
    """Committed progress of the stream, and its row counts."""
    yield "punctuation", known_instant(committed.punctuation)
    yield "greatest event time", known_instant(committed.greatest)
    for name, progress in sorted(committed.sources.items()):
        if name:
            yield f"source {name}", known_instant(progress.greatest)
    ahead = "promises in force" if stream.progress.patterns else "groups ahead of the stream"
    yield ahead, str(len(committed.groups))
    yield "rows", str(committed.rows)
    yield "late rows", str(committed.late)
    if committed.late:
        yield "furthest behind", render_duration(committed.slack_needed)
        if stream.punctuated_by is None and stream.progress.behind is None and not stream.progress.external:
            yield "slack needed", render_duration(stream.slack + committed.slack_needed)
    yield "rejected rows", str(committed.rejected)
    yield "kept for queries WITH SHEDDING", f"{committed.keep:g}"
    yield "shed rows", str(committed.shed)
    if stream.deduplicate is not None:
        yield "repeated rows", str(committed.repeated)
        yield "keys kept", str(sum(file.rows for file in committed.keys))


def _reduced_lines(reduced: Mapping[str, Any] | None) -> Iterator[tuple[str, str | None]]:
    """What the vacuum has reduced of the archive, and what waits for it."""
    if reduced is not None:
        free = reduced["free"]
        yield (
            "reduced archive",
            f"{reduced['stored']:,} of {reduced['rows']:,} rows, files: {reduced['segments']}",
        )
        yield (
            "waits for the vacuum",
            f"{free['rows']:,} rows, {free['bytes']:,} bytes, files: {free['files']}",
        )
        if "limit" in reduced:
            yield "stored of the limit", f"{reduced['bytes']:,} of {reduced['limit']:,} bytes"
        for name, copy in reduced["copies"].items():
            text = f"{copy['stored']:,} of {copy['rows']:,} rows, files: {copy['segments']}"
            yield f"reduced by {name}", f"{copy['reduction']}: {text}, epochs behind: {copy['behind']}"


def known_instant(at: Instant) -> str | None:
    """An instant as text; None for `BEGINNING`, of which nothing is known."""
    return None if at == BEGINNING else render_instant(at)
