"""`RemoteQuery`, a client of one standing query of a hub that another process runs: its answer, also in a notebook, results,
also as a Spark DataFrame, following of new results, plan and drop, as HTTP requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa

from headrace.connectors.formats.notebook import show_live
from headrace.connectors.formats.rendering import to_html
from headrace.remote.owner_methods import OwnerQueryMethods
from headrace.remote.transport import HubGone, Transport, segment, table_of_text

if TYPE_CHECKING:
    from headrace.runtime.results.past_answer import Timeline

_PAGE_ROWS = 100_000


class RemoteQuery(OwnerQueryMethods):
    """One query, by name; has the methods of `QueryHandle`."""

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport, self.name = transport, name

    def __repr__(self) -> str:
        return f"<standing query {self.name} of {self._transport.address}>"

    def _repr_html_(self) -> str:
        """The current answer, which a notebook shows for a query at the end of a cell."""
        return to_html(self.invoke(), self.name)

    def invoke(self, last: timedelta | int | str | None = None) -> pa.Table:
        """As `QueryHandle.invoke`."""
        if isinstance(last, timedelta):
            last = last // timedelta(microseconds=1)
        if isinstance(last, int):
            last = f"{last} MICROSECONDS"
        return self._transport.table(self._path("answer"), {"last": last})[0]

    def as_of(self, at: datetime) -> pa.Table:
        """As `QueryHandle.as_of`; a naive datetime is UTC."""
        return self._transport.table(self._path("answer"), {"at": at.isoformat()})[0]

    def history(self, since: datetime | None = None) -> pa.Table:
        """As `QueryHandle.history`."""
        return pa.concat_tables(list(self.history_in_parts(since)))

    def history_in_parts(self, since: datetime | None = None) -> Iterator[pa.Table]:
        """The rows of `history`, in the order of epochs."""
        after = None
        while True:
            params = {"since": since and since.isoformat(), "after": after, "limit": _PAGE_ROWS}
            table, facts = self._transport.table(self._path("results"), params)
            yield table
            if table.num_rows < _PAGE_ROWS:
                return
            after = facts["next"]

    def timeline(self, buckets: int = 200) -> Timeline | None:
        """As `QueryHandle.timeline`."""
        from headrace.runtime.results.past_answer import Timeline  # noqa: PLC0415 - with the reading of results

        counts = self._transport.json("GET", self._path("timeline"), params={"buckets": buckets})
        return None if counts["first"] is None else Timeline(**{**counts, "rows": tuple(counts["rows"])})

    @property
    def history_schema(self) -> pa.Schema:
        """As `QueryHandle.history_schema`."""
        return self._transport.table(self._path("results"), {"limit": 1})[0].schema

    def follow(self, *, client: str | None = None, cursor: int | None = None) -> Iterator[pa.Table]:
        """Result rows as epochs commit them, one table an epoch, from now on; ends when the hub does.

        `client`: begin with what that client has not acknowledged. `cursor`: begin after that position.
        """
        params = {"client": client, "since": cursor, "tables": "arrow"}
        try:
            with self._transport.stream(self._path("follow"), params) as response:
                for event in _events(response):
                    yield table_of_text(event["rows"])
        except HubGone:
            return

    def live(self) -> None:
        """As `QueryHandle.live`."""
        show_live(self.name, self.invoke, self.follow())

    def dataframe(self, spark: Any) -> Any:
        """All committed results, as a DataFrame of a SparkSession of this process."""
        return spark.createDataFrame(self.history())

    def drop(self) -> None:
        """As `QueryHandle.drop`."""
        self._transport.json("DELETE", self._path())

    def explain(self, form: str = "text") -> str:
        """The query's plan."""
        return self._transport.text("GET", self._path("explain"), params={"format": form})

    def _path(self, part: str = "") -> str:
        return f"/v1/queries/{segment(self.name)}{f'/{part}' if part else ''}"


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """The data of server-sent events."""
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))
