"""Definitions of the built-in streams: `system.epochs`, `system.streams`, `system.queries` and `system.quality`, the measurements that a
home makes of itself. They are in the catalog from the first query that reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace.catalog.definitions import StreamDefinition
from headrace.schema import BIGINT, BOOLEAN, DOUBLE, STRING, TIMESTAMP, Field, Schema
from headrace.time import DAY, FOREVER, SECOND

USING: Final = "system"
"""Their source: the runtime itself, which no statement can name."""
PREFIX: Final = "system."
"""The beginning of their names, which no other stream, relation or query has."""
EPOCHS: Final = "system.epochs"
STREAMS: Final = "system.streams"
QUERIES: Final = "system.queries"
QUALITY: Final = "system.quality"


def _stream(name: str, *columns: Field) -> StreamDefinition:
    """A built-in stream. Its rows wait up to a second for others, so that an idle hub does not run twice as many epochs."""
    return StreamDefinition(
        name,
        Schema((Field("at", TIMESTAMP), Field("epoch", BIGINT), *columns)),
        USING,
        {"rememberProducers": "36500 DAYS"},
        time="at",
        max_ahead=FOREVER // 2,
        retain=7 * DAY,
        latency=SECOND,
    )


_COUNTS: Final = tuple(Field(name, BIGINT) for name in ("rows", "late", "rejected"))
DEFINITIONS: Final[Mapping[str, StreamDefinition]] = {
    stream.name: stream
    for stream in (
        _stream(
            EPOCHS,
            Field("kind", STRING),
            *_COUNTS,
            Field("results", BIGINT),
            Field("seconds", DOUBLE),
            Field("state_bytes", BIGINT),
            Field("state_runs", BIGINT),
        ),
        _stream(
            STREAMS,
            Field("stream", STRING),
            *_COUNTS,
            Field("shed", BIGINT),
            Field("punctuation", TIMESTAMP),
            Field("lag", DOUBLE),
        ),
        _stream(
            QUERIES,
            Field("query", STRING),
            Field("state", STRING),
            *(Field(name, BIGINT) for name in ("rows_in", "rows_kept", "results", "rejected", "state_rows")),
            Field("failure", STRING),
        ),
        _stream(
            QUALITY,
            Field("query", STRING),
            *(Field(name, DOUBLE) for name in ("utility", "delay", "lost")),
            Field("sketched", BOOLEAN),
            *(Field(name, BIGINT) for name in ("to_repair", "repaired", "unrepaired")),
        ),
    )
}
"""By name. `docs/reference/language.md` has the meaning of the columns."""


def is_system(name: str) -> bool:
    """Whether a name is one that only built-in streams have."""
    return name.lower().startswith(PREFIX)


def built_in(name: str) -> StreamDefinition | None:
    """The built-in stream of that name, compared without case; None where there is none."""
    return DEFINITIONS.get(name.lower())
