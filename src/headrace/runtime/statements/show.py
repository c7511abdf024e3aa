"""Execution of SHOW, DESCRIBE and EXPLAIN: tables of the catalog with states and progress, and texts of plans; and the
names of the queries that read a given stream, relation or query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.algebra.query import Query, QueryScan, RelationScan, StreamScan, every_node
from headrace.catalog.catalog import Catalog, registration
from headrace.catalog.definitions import QueryDefinition
from headrace.errors import UserError, did_you_mean
from headrace.language.statements import statement as stmt
from headrace.language.statements.create_text import create_query_text
from headrace.language.statements.query_filter import Selection
from headrace.planner.explain.operator_text import explain
from headrace.runtime.backfill.completeness import newest_plan, plan_in_force
from headrace.runtime.delivery.open_actions import recorded_actions
from headrace.runtime.delivery.sink_states import recorded
from headrace.runtime.introspection.describe import (
    known_instant,
    progress_table,
    query_progress_table,
    reduced_archives,
)
from headrace.runtime.introspection.quality import worth_by_query
from headrace.runtime.introspection.time_class import time_class_of
from headrace.runtime.messages.repair_ledger import REPAIRS
from headrace.runtime.plan.bound_queries import CatalogNames, bind_text, bound, streams_made_by
from headrace.runtime.plan.epoch_planner import plan_after
from headrace.runtime.repair.repair_report import RepairReport, repairs_by_query
from headrace.runtime.statements.outcome import Outcome
from headrace.runtime.statements.query_choice import chosen
from headrace.schema import Schema
from headrace.store.logs.committed import CommittedStream, OperatorProgress
from headrace.store.logs.manifest import Manifest
from headrace.time import render_duration, render_instant

if TYPE_CHECKING:
    from headrace.runtime.home.home import Home


def show(
    home: Home,
    statement: stmt.Statement,
    sinks: Callable[[], list[dict[str, Any]]] | None = None,
    warnings: Callable[[], Mapping[str, str]] = dict,
    actions: Callable[[], list[dict[str, Any]]] | None = None,
) -> Outcome:
    """The table or text of a statement that changes nothing; `sinks` and `actions` report those of a hub, without it the recorded ones.

    `warnings` returns, by stream, what its source does not give.

    Raises `UserError` for names that do not exist.
    """
    catalog = home.newest_catalog()
    match statement:
        case stmt.Show(kind=kind, selection=selection):
            return Outcome("show", None, "", _listing(home, kind, selection, sinks, actions, warnings()))
        case stmt.Describe(name=name, extended=True) if catalog.stream(name) is not None:
            stream = catalog.stream(name)
            assert stream is not None
            committed = home.latest().streams.get(stream.name, CommittedStream(keep=stream.keep))
            reduced = reduced_archives(home, home.latest(), [stream]).get(stream.name)
            return Outcome("describe", name, "", progress_table(stream, committed, reduced))
        case stmt.Describe(name=name, extended=True) if catalog.query(name) is not None:
            standing = catalog.require_query(name)
            progress = home.latest().find_operator(standing.operator_id)
            return Outcome("describe", name, "", query_progress_table(standing.definition, progress))
        case stmt.Describe(name=name):
            return Outcome("describe", name, "", _described(catalog, name))
        case stmt.ShowCreate(name=name):
            text = create_query_text(catalog.require_query(name).definition)
            return Outcome("show", name, "", pa.table({"statement": [text]}))
        case stmt.ExplainQuery(name=name, form=form):
            from headrace.runtime.introspection.explain import explain_query  # noqa: PLC0415 - with its drawings

            return _text("explain", name, explain_query(home, name, form))
        case stmt.ExplainAdaptive(name=name, form=form):
            from headrace.runtime.introspection.adaptation import explain_adaptive  # noqa: PLC0415

            return _text("explain", name, explain_adaptive(home, name, form))
        case stmt.ExplainAll(form=form):
            from headrace.runtime.introspection.explain import explain_all  # noqa: PLC0415

            return _text("explain", None, explain_all(home, form))
        case stmt.ExplainSelect(query=text, select=select, zone=zone, asks=asks):
            query = bind_text(catalog, text, zone)
            if asks:
                from headrace.runtime.invoke.questions.answer import explained as explained_question  # noqa: PLC0415
                from headrace.runtime.invoke.questions.clauses import check_names  # noqa: PLC0415

                check_names(query, select)
                how = home.at_newest_epoch(lambda manifest: explained_question(home, manifest, query))
                return _text("explain", None, how)
            return _text("explain", None, _explained_select(home, catalog, query, text, zone))
        case stmt.Ask(query=text, select=select, within=within, zone=zone, duration=duration):
            from headrace.runtime.invoke.questions.answer import Accepted, asked  # noqa: PLC0415
            from headrace.runtime.invoke.questions.clauses import check_names  # noqa: PLC0415

            question, accepted = bind_text(catalog, text, zone), Accepted(within, duration)
            check_names(question, select)
            answer = home.at_newest_epoch(lambda manifest: asked(home, manifest, question, accepted))
            return Outcome("ask", None, str(answer), answer.table)
    raise UserError(f"a {type(statement).__name__} statement needs the writer of this home")


def _explained_select(home: Home, before: Catalog, query: Query, text: str, zone: str) -> str:
    """The operators of a query as if it were registered, the one that answers it first; what it reads and stores."""
    from headrace.planner.storage.query_storage import storage_of  # noqa: PLC0415 - as drawings: rarely asked for

    entries = [
        *streams_made_by(before, query),
        registration(QueryDefinition("(not registered)", text, zone=zone)),
    ]
    plan, after = newest_plan(home, before), before.apply_all(entries)
    planned = plan_after(plan, before, after, entries).plan
    new = [operator for name, operator in planned.operators.items() if name not in plan.operators]
    answers = after.require_query("(not registered)").operator_id
    new.sort(key=lambda operator: operator.id != answers)
    read = time_class_of(home.latest(), query)
    return "\n".join([*map(explain, new), *read, *storage_of(query).lines()])


def _text(kind: str, name: str | None, text: str) -> Outcome:
    return Outcome(kind, name, text, pa.table({"plan": text.split("\n")}))


def _listing(
    home: Home,
    kind: str,
    selection: Selection,
    sinks: Callable[[], list[dict[str, Any]]] | None,
    actions: Callable[[], list[dict[str, Any]]] | None,
    warnings: Mapping[str, str],
) -> pa.Table:
    manifest = home.latest()
    if kind == "query":
        rows = _queries(home, manifest, selection)
    else:
        if kind == "sink":
            reports = recorded(home) if sinks is None else sinks()
            every = _since({**report, "name": report["sink"]} for report in reports)
        elif kind == "action":
            owners = {
                query.definition.name: query.definition.owner for query in home.catalog.queries.values()
            }
            reports = recorded_actions(home) if actions is None else actions()
            every = _since({**report, "owner": owners.get(report["name"])} for report in reports)
        else:
            every = _streams(home, manifest, warnings) if kind == "stream" else _relations(home)
        rows = [
            row
            for row in every
            if all(condition.holds([row[condition.property] or ""]) for condition in selection)
        ]
    columns = _COLUMNS[kind]
    for optional in ("warning", "utility", "to_repair", "repaired"):
        if optional in columns.names and not any(row[optional] is not None for row in rows):
            columns = columns.remove(columns.get_field_index(optional))
    return pa.Table.from_pylist(rows, columns)


_TEXT, _COUNT = pa.string(), pa.int64()
_COLUMNS = {
    "stream": pa.schema(
        [
            *[(name, _TEXT) for name in ("name", "using", "event_time", "slack")],
            *[(name, _COUNT) for name in ("rows", "late", "rejected")],
            *[("punctuation", _TEXT), ("keep", pa.float64()), ("shed", _COUNT), ("warning", _TEXT)],
        ]
    ),
    "relation": pa.schema([("name", _TEXT), ("using", _TEXT), ("version", _COUNT)]),
    "query": pa.schema(
        [
            *[(name, _TEXT) for name in ("name", "state", "answered_to", "complete_since", "owner", "tags")],
            *[("utility", pa.float64()), ("to_repair", _COUNT), ("repaired", _COUNT), ("query", _TEXT)],
        ]
    ),
    "action": pa.schema(
        [
            *[(name, _TEXT) for name in ("name", "action", "state", "since")],
            *[("attempts", _COUNT), ("error", _TEXT)],
            *[(name, _COUNT) for name in ("dead_letters", "epochs_behind", "bytes_behind")],
            *[(name, _TEXT) for name in ("owner", "id")],
        ]
    ),
    "sink": pa.schema(
        [
            *[(name, _TEXT) for name in ("name", "query", "target", "state", "since")],
            *[("attempts", _COUNT), ("error", _TEXT)],
            *[(name, _COUNT) for name in ("position", "epochs_behind", "bytes_behind")],
        ]
    ),
}


def _since(reports: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Reports with their instants as text."""
    return [
        {**report, "since": None if report["since"] is None else render_instant(report["since"])}
        for report in reports
    ]


def _streams(home: Home, manifest: Manifest, warnings: Mapping[str, str]) -> list[dict[str, Any]]:
    rows = []
    for stream in home.catalog.streams.values():
        committed = manifest.stream(stream.name)
        rows.append(
            {
                "name": stream.name,
                "using": stream.using,
                "event_time": stream.event_time,
                "slack": render_duration(stream.slack),
                "rows": committed.rows,
                "late": committed.late,
                "rejected": committed.rejected,
                "punctuation": known_instant(committed.punctuation),
                "keep": home.catalog.sample_rate_of(stream.name),
                "shed": committed.shed,
                "warning": warnings.get(stream.name),
            }
        )
    return rows


def _relations(home: Home) -> list[dict[str, Any]]:
    return [
        {"name": r.definition.name, "using": r.definition.using, "version": r.version}
        for r in home.catalog.relations.values()
    ]


def _queries(home: Home, manifest: Manifest, selection: Selection) -> list[dict[str, Any]]:
    rows = []
    worth, repairs = worth_by_query(manifest, home.catalog), _repairs(home, manifest)
    for query, seen in chosen(home, selection, manifest):
        repair = repairs.get(query.definition.name)
        closed = (manifest.find_operator(query.operator_id) or OperatorProgress()).emitted_to
        rows.append(
            {
                "name": query.definition.name,
                "state": str(seen),
                "answered_to": known_instant(closed),
                "complete_since": known_instant(seen.complete_since),
                "owner": query.definition.owner,
                "tags": ", ".join(query.definition.tags) or None,
                "utility": worth[query.definition.name].utility if query.definition.name in worth else None,
                "to_repair": None if repair is None else repair.waiting,
                "repaired": None if repair is None else repair.repaired,
                "query": " ".join(query.definition.text.split()),
            }
        )
    return rows


def _repairs(home: Home, manifest: Manifest) -> dict[str, RepairReport]:
    """What waits for repair, by query; nothing where no query was ever answered from samples."""
    if REPAIRS not in manifest.facts:
        return {}
    return repairs_by_query(manifest, plan_in_force(home, manifest), home.catalog)


def _described(catalog: Catalog, name: str) -> pa.Table:
    schema: Schema
    if (stream := CatalogNames(catalog).stream(name)) is not None:
        schema = stream.schema
    elif (relation := catalog.relation(name)) is not None:
        schema = relation.definition.schema
    elif (query := catalog.query(name)) is not None:
        schema = bound(catalog, query).schema
    else:
        names = list(CatalogNames(catalog).known())
        raise UserError(f"there is no stream, relation or query '{name}'", remedy=did_you_mean(name, names))
    return pa.table(
        {"column": [field.name for field in schema], "type": [str(field.type) for field in schema]}
    )


def users_of(catalog: Catalog, kind: str, name: str) -> list[str]:
    """Queries that read a stream, relation or query."""
    kind_of_scan = {"stream": StreamScan, "relation": RelationScan, "query": QueryScan}[kind]
    users = []
    for query in catalog.queries.values():
        scans = [
            node
            for node in every_node(bound(catalog, query))
            if isinstance(node, StreamScan | RelationScan) or (isinstance(node, QueryScan) and node.is_named)
        ]
        if any(isinstance(node, kind_of_scan) and node.name.lower() == name.lower() for node in scans):
            users.append(query.definition.name)
    return users
