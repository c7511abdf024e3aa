"""INVOKE of a part of a query's window: `INVOKE q [RANGE d]`, computed from committed state without a Spark job."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headrace.algebra.query import Query
from headrace.errors import UserError
from headrace.operators.base.operator import Operator, Sections
from headrace.operators.families.family import state_name
from headrace.operators.on_demand.subwindow_check import check, full_length
from headrace.operators.scalar.evaluation.user_functions import registered
from headrace.runtime.home.home import Home
from headrace.runtime.home.run_cache import open_run
from headrace.runtime.invoke import current_answer
from headrace.runtime.invoke.answer_caveats import caveats_of
from headrace.runtime.plan.user_functions import callable_by_name
from headrace.runtime.results import result_log
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, Duration


def answer_within(home: Home, operator: Operator, query: Query, length: Duration | None) -> pa.Table:
    """The answer as if the query's window were `length` long; None: the answer of the query.

    Raises `UserError` where the query does not store such a window.
    """
    if length is None:
        return current_answer.displayed_answer(home, operator, query)
    check(operator, length)
    if length == full_length(operator):
        return current_answer.displayed_answer(home, operator, query)

    def answered(manifest: Manifest) -> pa.Table:
        table = _computed(home, manifest, operator, query, length)
        return caveats_of(home, manifest, operator, query, table, length).on(table)

    table = home.at_newest_epoch(answered)
    return result_log.visible(result_log.ordered(table, operator.sort, query.schema.names), query)


def _computed(home: Home, manifest: Manifest, operator: Operator, query: Query, length: Duration) -> pa.Table:
    committed = manifest.stream(operator.stream)
    if operator.id not in manifest.operators or committed.greatest == BEGINNING:
        return result_log.empty(query)
    progress = manifest.operator(operator.id)
    if progress.group_punctuations:
        raise UserError(
            f"some groups of {operator.query} are beyond the punctuation of its stream: their windows do not end together",
            remedy="Ask for the whole window.",
        )
    now = max(progress.emitted_to - 1, committed.greatest)
    with registered(callable_by_name(home.catalog.functions)):
        table = operator.answer_subwindow(
            length, list(_sections(home, manifest, operator)), progress.emitted_to, now
        )
    if table is None:
        return result_log.empty(query)
    if query.emission == "relation":
        return result_log.consolidated(table, query.schema.names)
    return table


def _sections(home: Home, manifest: Manifest, operator: Operator) -> Iterator[Sections]:
    """The operator's state in each run; of a family's state only its own rows."""
    prefix = f"{state_name(operator)}/"
    for run in manifest.state:
        tables = _named(open_run(home.store, run.name), prefix)
        rows = {name: operator.own_rows([table])[0] for name, table in tables.items()}
        yield {name: table for name, table in rows.items() if table.num_rows}
        if operator.family_key is not None:  # state that it stored before it had a family
            yield operator.for_family(_named(open_run(home.store, run.name), f"{operator.id}/"))


def _named(sections: Sections, prefix: str) -> dict[str, pa.Table]:
    """The sections whose names have a prefix, without it."""
    return {name.removeprefix(prefix): sections[name] for name in sections if name.startswith(prefix)}
