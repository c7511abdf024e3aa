"""INVOKE of a part of a query's window: `INVOKE q [RANGE d]`, answered from committed state without a Spark job."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headrace.algebra.query import Query
from headrace.errors import UserError
from headrace.operators.family import state_name
from headrace.operators.operator import Operator, Sections
from headrace.operators.scalar.users import registered
from headrace.operators.shorter_windows import check, full_length
from headrace.runtime import answers, results
from headrace.runtime.functions import callable_by_name
from headrace.runtime.home import Home
from headrace.runtime.plans import open_run
from headrace.runtime.remarks import remarks_on
from headrace.store.filesystem import MissingFile
from headrace.store.manifest import Manifest
from headrace.time import BEGINNING, Duration


def answer_within(home: Home, operator: Operator, query: Query, length: Duration) -> pa.Table:
    """What INVOKE returns, were the query's window `length` long.

    Raises `UserError` where the query keeps no such window.
    """
    check(operator, length)
    if length == full_length(operator):
        return answers.answer_to_show(home, operator, query)
    while True:
        manifest = home.latest()
        try:
            table = _asked(home, manifest, operator, query, length)
        except MissingFile:
            if home.latest().epoch == manifest.epoch:
                raise
            continue
        table = remarks_on(home, manifest, operator, query, table, length).on(table)
        return results.visible(results.ordered(table, operator.sort, query.schema.names), query)


def _asked(home: Home, manifest: Manifest, operator: Operator, query: Query, length: Duration) -> pa.Table:
    known = manifest.stream(operator.stream)
    if operator.id not in manifest.operators or known.greatest == BEGINNING:
        return results.empty(query)
    standing = manifest.operators[operator.id]
    if standing.ahead:
        raise UserError(
            f"some groups of {operator.query} are ahead of its stream: their windows do not end together",
            remedy="Ask for the whole window.",
        )
    now = max(standing.closed - 1, known.greatest)
    with registered(callable_by_name(home.catalog.functions)):
        table = operator.answer_subwindow(
            length, list(_sections(home, manifest, operator)), standing.closed, now
        )
    if table is None:
        return results.empty(query)
    if query.emission == "relation":
        return results.consolidated(table, query.schema.names)
    return table


def _sections(home: Home, manifest: Manifest, operator: Operator) -> Iterator[Sections]:
    """The operator's state in each run; of its family's state the rows that are its own."""
    prefix = f"{state_name(operator)}/"
    for run in manifest.state:
        found = {
            name.removeprefix(prefix): table
            for name, table in open_run(home.store, run.name).items()
            if name.startswith(prefix)
        }
        own = {name: operator.own_rows([table])[0] for name, table in found.items()}
        yield {name: table for name, table in own.items() if table.num_rows}
