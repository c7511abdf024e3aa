"""Rows handed in by a program, for streams made USING push."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from headrace.catalog.catalog import Catalog
from headrace.catalog.definitions import StreamDefinition
from headrace.errors import UserError, did_you_mean
from headrace.runtime.engine import Engine
from headrace.runtime.home import Home
from headrace.runtime.sources.segments import write_push_segment


def require_stream(catalog: Catalog, name: str) -> StreamDefinition:
    """The stream of that name.

    Raises `UserError` that names near ones.
    """
    found = catalog.stream(name)
    if found is None:
        names = [stream.name for stream in catalog.streams.values()]
        raise UserError(f"there is no stream '{name}'", remedy=did_you_mean(name, names))
    return found


def push(home: Home, engine: Engine, name: str, rows: Any) -> int:
    """Write rows as a segment and log it; how many rows.

    Raises `UserError` when the stream is not made for it or the rows do not fit its columns.
    """
    definition = require_stream(home.catalog, name)
    if definition.using != "push":
        raise UserError(
            f"the stream '{definition.name}' reads {definition.using}, it takes no pushed rows",
            remedy="CREATE STREAM ... USING push.",
        )
    folder = Path(home.store.root) / "segments" / definition.name
    record = write_push_segment(definition, rows, folder, f"push-{uuid.uuid4().hex}", engine.clock())
    engine.intake.hand_in(record)
    return record.rows_hint
