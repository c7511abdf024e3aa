"""Tables in HTTP responses, as JSON or as an Arrow stream; and rows in the body of a push, read from JSON lines, CSV or
an Arrow stream.
"""

from __future__ import annotations

import base64
import io
import json
from typing import Any, Final

import pyarrow as pa
from fastapi import Request, Response

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.formats.rendering import to_json
from headrace.connectors.sources.sent_rows import SentRows, sent_as_table, sent_as_text
from headrace.errors import UserError
from headrace.server.problems import Refused
from headrace.time import Instant

ARROW: Final = "application/vnd.apache.arrow.stream"
_FORMATS: Final = {
    "application/x-www-form-urlencoded": "json",  # what curl says of any text
    "application/x-ndjson": "json",
    "application/json": "json",
    "text/csv": "csv",
    ARROW: "arrow",
}


def arrow_bytes(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def rows_text(table: pa.Table) -> str:
    """A table as the text of a JSON array of objects."""
    return f"[{','.join(to_json(table).splitlines())}]"


def table_text(table: pa.Table, form: str) -> str:
    """A table as JSON text: an array of objects, or with the form "arrow" an Arrow stream in base 64."""
    return f'"{base64.b64encode(arrow_bytes(table)).decode()}"' if form == "arrow" else rows_text(table)


def table_response(request: Request, table: pa.Table, facts: dict[str, Any]) -> Response:
    """A table with facts about it: one JSON object with "rows", or an Arrow stream with the facts as a header."""
    if wants_arrow(request):
        return Response(arrow_bytes(table), media_type=ARROW, headers={"Headrace-Facts": json.dumps(facts)})
    head = json.dumps(facts)[:-1]
    return Response(
        f'{head}{", " if facts else ""}"rows": {rows_text(table)}}}', media_type="application/json"
    )


def wants_arrow(request: Request) -> bool:
    """Whether the client asks for Arrow."""
    return ARROW in request.headers.get("accept", "")


def sent_rows(definition: StreamDefinition, media_type: str, body: bytes, now: Instant) -> SentRows:
    """The rows of a request's body.

    Raises `Refused` for a media type that is none of JSON lines, CSV with a header and an Arrow stream, and `UserError` for an
    Arrow stream that is none, or has other columns than the stream.
    """
    kind = _FORMATS.get(media_type.partition(";")[0].strip().lower())
    if kind is None:
        raise Refused(
            415,
            f"rows as '{media_type}' are not understood",
            f"Send application/x-ndjson, text/csv or {ARROW}.",
        )
    if kind == "arrow":
        return sent_as_table(definition, _of_arrow(body), now)
    return sent_as_text(definition, kind, body, now)


def _of_arrow(body: bytes) -> pa.Table:
    try:
        with pa.ipc.open_stream(body) as reader:
            table = reader.read_all()
        table.validate(full=True)  # kernels trust offsets, and do not check that text is UTF-8
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"the body is no Arrow stream: {error}") from None
    return table
