"""The query log up to a position, folded: the catalog, and what its entries have that no definition has.

A fold is also a JSON value: the snapshot that an append to the log has now and then, of all records before, so that these can be
deleted (decision 122).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Protocol

from headrace.catalog.catalog import Catalog, is_of_query
from headrace.dataclass import dataclass

BORN: Final = "ingest"
"""In the query log's entry of a new stream: how many ingest records there were."""
_COMPARED: Final = 1024
"""Appends, the newest, whose ids are compared with the next one's: a repetition follows few others."""
_LEAST: Final = 1024
_FOR_EACH: Final = 2
"""A snapshot is worth writing after so many records, and so many for each definition: it costs less than they did."""


class Append(Protocol):
    """Records that were appended to the log together, and the append's id (None: written by an older version)."""

    @property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """The entries, in order."""
        ...

    @property
    def append(self) -> str | None:
        """The id."""
        ...


@dataclass(frozen=True, slots=True)
class FoldedLog:
    """The catalog as of a position.

    `births`: of each stream how many ingest records there were when it was created, and the position after its entry. `appends`: ids of
    the newest appends, in order.
    """

    catalog: Catalog = field(default_factory=Catalog)
    births: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    appends: Mapping[str, None] = field(default_factory=dict)

    def then(self, later: Iterable[Append]) -> FoldedLog:
        """The fold with later appends. One that is in the log several times, with fewer than a thousand others between, counts once."""
        catalog, births, appends = self.catalog, dict(self.births), dict(self.appends)
        of_queries: list[Mapping[str, Any]] = []
        for made in later:
            if made.append in appends:
                catalog = catalog.apply_all(of_queries).without_effect(len(made.records))
                of_queries.clear()
                continue
            for entry in made.records:
                if is_of_query(entry):
                    of_queries.append(entry)
                    continue
                catalog = catalog.apply_all(of_queries)
                of_queries.clear()
                if entry["do"] == "create_stream" and catalog.stream(entry["stream"]["name"]) is None:
                    births[entry["stream"]["name"].lower()] = entry.get(BORN, 0), catalog.position + 1
                catalog = catalog.apply(entry)
            if made.append is not None:
                appends[made.append] = None
                if len(appends) > _COMPARED:  # here: the catalog does not depend on how much is read at once
                    del appends[next(iter(appends))]
        return FoldedLog(catalog.apply_all(of_queries), births, appends)

    def is_worth_writing(self, records: int) -> bool:
        """Whether so many records since the last snapshot are enough for another."""
        return records >= _LEAST and records >= _FOR_EACH * self.catalog.definitions

    def as_json(self) -> dict[str, Any]:
        """JSON values, without streams that were dropped."""
        from headrace.catalog.catalog_json import catalog_to_json  # noqa: PLC0415 - only where it is used

        births = {name: list(birth) for name, birth in self.births.items() if self.catalog.stream(name)}
        return {"catalog": catalog_to_json(self.catalog), "births": births, "appends": list(self.appends)}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> FoldedLog:
        """The inverse."""
        from headrace.catalog.catalog_json import catalog_from_json  # noqa: PLC0415 - only where it is used

        births = {name: (records, position) for name, (records, position) in value["births"].items()}
        return FoldedLog(catalog_from_json(value["catalog"]), births, dict.fromkeys(value["appends"]))
