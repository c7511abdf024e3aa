"""A reader of a home without its writer's lock, from committed files alone: its catalog, a query's operator and algebra,
and INVOKE.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headrace.algebra.query import Query
from headrace.catalog.catalog import Catalog
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.operators.base.operator import Operator
from headrace.runtime.home.home import Home
from headrace.runtime.invoke.subwindow import answer_within
from headrace.runtime.plan.bound_queries import bound
from headrace.runtime.plan.epoch_planner import operator_of
from headrace.time import Duration


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads a home that this or another process writes. Never changes a byte of it."""

    home: Home

    @staticmethod
    def at(path: Path) -> Reader:
        """The home in a folder.

        Raises `UserError` when there is none.
        """
        if not (path / "manifests").is_dir():
            raise UserError(f"there is no home in {path}", remedy="headrace run SCRIPT --home DIR makes one.")
        return Reader(Home.at(path))

    @property
    def catalog(self) -> Catalog:
        """The current catalog, with what another process has just registered."""
        return self.home.newest_catalog()

    def operator_and_query(self, name: str) -> tuple[Operator, Query]:
        """A query's operator and its algebra."""
        catalog = self.catalog
        catalog_query = catalog.require_query(name)
        query = bound(catalog, catalog_query)
        return operator_of(catalog, catalog_query), query

    def invoke(self, name: str, last: Duration | None = None) -> pa.Table:
        """A query's answer as of the latest committed epoch; `last` restricts it to the latest part of its window."""
        operator, query = self.operator_and_query(name)
        return answer_within(self.home, operator, query, last)
