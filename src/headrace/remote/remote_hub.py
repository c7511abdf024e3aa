"""`RemoteHub`, a client of a hub that another process runs: most methods of `Hub`, as HTTP requests; and `connect_hub`,
which finds the hub by its home or URL.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from headrace.connectors.records.given_rows import given_rows
from headrace.errors import Span, UserError
from headrace.remote.owner_methods import OwnerMethods
from headrace.remote.remote_query import RemoteQuery
from headrace.remote.sockets import is_listening
from headrace.remote.transport import ARROW, Transport, segment, table_of_text
from headrace.runtime.statements.outcome import Outcome
from headrace.time import EPOCH, render_instant

if TYPE_CHECKING:
    from headrace.planner.lowering.materialization import Materialize

_OWNERS: Final = "The process that runs the hub does that."


class RemoteHub(OwnerMethods):
    """Streams, relations and standing queries of a hub that another process runs: see `headrace.connect`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def __repr__(self) -> str:
        return f"<hub of {self._transport.address}>"

    def execute(self, script: str, *, zone: str = "UTC") -> list[Outcome]:
        """As `Hub.execute`; `zone` is the time zone of the script's literals, as after SET TIME ZONE."""
        params = {"tables": "arrow", "zone": zone}
        answers = self._transport.json("POST", "/v1/statements", script=script, params=params)
        return [_outcome(answer) for answer in answers]

    def register(
        self,
        select: str,
        name: str,
        *,
        from_now: bool = False,
        owner: str | None = None,
        tags: Sequence[str] = (),
        materialize: Materialize | None = None,
    ) -> RemoteQuery:
        """As `Hub.register`."""
        self.register_many({name: select}, from_now=from_now, owner=owner, tags=tags, materialize=materialize)
        return self.query(name)

    def register_many(
        self,
        selects: Mapping[str, str],
        *,
        from_now: bool = False,
        owner: str | None = None,
        tags: Sequence[str] = (),
        materialize: Materialize | None = None,
    ) -> list[RemoteQuery]:
        """As `Hub.register_many`."""
        body = {"queries": dict(selects), "from_now": from_now, "owner": owner, "tags": list(tags)}
        self._transport.json("POST", "/v1/queries", json={**body, "materialize": materialize})
        return [self.query(name) for name in selects]

    def query(self, name: str) -> RemoteQuery:
        """The standing query of that name.

        Raises `UnknownName` when there is none.
        """
        described = self._transport.json("GET", f"/v1/queries/{segment(name)}")
        return RemoteQuery(self._transport, described["name"])

    def drop_query(self, name: str) -> None:
        """As `Hub.drop_query`."""
        self._transport.json("DELETE", f"/v1/queries/{segment(name)}")

    def push(
        self, stream: str, rows: Any, *, producer: str | None = None, sequence: int | None = None
    ) -> int:
        """As `Hub.push`, for an Arrow table, a pandas frame or a list of dicts."""
        out = io.BytesIO()
        table = given_rows(stream, rows)
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
        headers = {"Content-Type": ARROW}
        if producer is not None and sequence is not None:
            headers |= {"Producer": producer, "Sequence": str(sequence)}
        path = f"/v1/streams/{segment(stream)}/rows"
        answer = self._transport.json("POST", path, content=out.getvalue(), headers=headers)
        return int(answer["accepted"] + answer["rejected"])

    def punctuate(
        self, stream: str, at: int | datetime | None = None, where: str | None = None, zone: str = "UTC"
    ) -> None:
        """As `Hub.punctuate`, by the statement PUNCTUATE."""
        self.execute(_punctuation(stream, at, where, zone), zone=zone)

    def status(self) -> dict[str, Any]:
        """As `Hub.status`."""
        return dict(self._transport.json("GET", "/v1/status"))

    def explain(self, query: str | None = None, form: str = "text") -> str:
        """As `Hub.explain`."""
        if query is not None:
            return self.query(query).explain(form)
        return self._transport.text("GET", "/v1/explain", params={"format": form})

    def catch_up(self) -> None:
        """Wait until the hub has consumed all input that is there now.

        Raises `UserError` when its epochs are paused.
        """
        self._transport.json("POST", "/v1/epochs/catch-up")

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Nothing to do: the hub runs. For programs that are written for a hub of their own."""
        yield self

    def run_once(self, *, seal: bool = False) -> dict[str, pa.Table]:
        """Refused: epochs are the owner's.

        Raises `UserError`.
        """
        raise UserError(
            f"{self!r} runs its epochs by itself{' and is not sealed' if seal else ''}", remedy=_OWNERS
        )

    def close(self) -> None:
        """Close the connections; the hub continues."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect_hub(at: str | Path, token: str | None = None) -> RemoteHub:
    """The hub that runs on a home, or at a URL.

    Raises `UserError` when none runs on the home.
    """
    if isinstance(at, str) and at.startswith(("http://", "https://")):
        return RemoteHub(Transport.to_url(at.rstrip("/"), token))
    home = Path(at).expanduser().absolute()
    if not is_listening(home):
        raise UserError(
            f"no hub runs on the home {home}",
            remedy=f"Start one with: headrace serve --home {at}; or open it in this process with hr.open.",
        )
    return RemoteHub(Transport.to_home(home))


def in_place(text: str, span: Span) -> str:
    """A part of a script, with blanks before it: mistakes in it have their place in the script."""
    before = "".join(sign if sign == "\n" else " " for sign in text[: span.start])
    return before + text[span.start : span.end]


def _punctuation(stream: str, at: int | datetime | None, where: str | None, zone: str) -> str:
    """The statement. Raises `UserError` for a datetime without a zone, and for a `where` that is no expression."""
    from headrace.language.parser.expressions import parse_expression  # noqa: PLC0415 - most clients need no parser
    from headrace.language.parser.quoting import identifier  # noqa: PLC0415

    parts = [f"PUNCTUATE {identifier(stream)}"]
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise UserError(f"the datetime {at} has no zone", remedy="Give it one, such as datetime.UTC.")
        at = (at - EPOCH) // timedelta(microseconds=1)
    if at is not None:
        parts.append(f"AT TIMESTAMP '{render_instant(at)}'")
    if where is not None:
        parse_expression(where, zone)
        parts.append(f"WHERE {where}")
    return " ".join(parts)


def _outcome(answer: Mapping[str, Any]) -> Outcome:
    table = table_of_text(answer["rows"]) if "rows" in answer else None
    return Outcome(answer["kind"], answer["name"], answer["message"], table, answer["warning"])
