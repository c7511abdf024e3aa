"""What SHOW, DESCRIBE and EXPLAIN show: the catalog, and how far everything is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.algebra.query import QueryScan, RelationScan, StreamScan, every_node
from headrace.catalog.catalog import Catalog
from headrace.errors import UserError, did_you_mean
from headrace.language import statement as said
from headrace.planner.explain import explain
from headrace.planner.lower import lower
from headrace.runtime.describing import progress_table
from headrace.runtime.outcome import Outcome
from headrace.runtime.planning import CatalogNames, bind_text, bound, levels, make_plan
from headrace.schema import Schema
from headrace.store.manifest import Manifest
from headrace.time import BEGINNING, render_duration, render_instant

if TYPE_CHECKING:
    from headrace.runtime.home import Home


def show(home: Home, statement: said.Statement) -> Outcome:
    """The table or text of a statement that changes nothing.

    Raises `UserError` for names that do not exist.
    """
    home.refresh()
    match statement:
        case said.Show(kind=kind, like=like):
            return Outcome("show", None, "", _listing(home, kind, like))
        case said.Describe(name=name, extended=True) if home.catalog.stream(name) is not None:
            stream = home.catalog.stream(name)
            assert stream is not None
            known = home.latest().streams.get(stream.name, {})
            return Outcome("describe", name, "", progress_table(stream, known))
        case said.Describe(name=name):
            return Outcome("describe", name, "", _described(home.catalog, name))
        case said.ExplainQuery(name=name):
            standing = home.catalog.require_query(name)
            operators = make_plan(home.catalog).operators
            query = bound(home.catalog, standing)
            chain = [each for each, _ in levels(standing.definition.name, query, standing.operator_id)]
            return _text("explain", name, "\n".join(explain(operators[each]) for each in chain))
        case said.ExplainAll():
            every = make_plan(home.catalog).operators.values()
            return _text("explain", None, "\n".join(explain(operator) for operator in every))
        case said.ExplainSelect(query=text):
            query = bind_text(home.catalog, text)
            told = [lower("(not registered)", each, name) for name, each in levels("", query, "unregistered")]
            return _text("explain", None, "\n".join(map(explain, told)))
    raise UserError(f"a {type(statement).__name__} statement needs the writer of this home")


def _text(kind: str, name: str | None, text: str) -> Outcome:
    return Outcome(kind, name, text, pa.table({"plan": text.split("\n")}))


def _listing(home: Home, kind: str, like: str | None) -> pa.Table:
    manifest = home.latest()
    rows = {"stream": _streams, "relation": _relations, "query": _queries}[kind](home.catalog, manifest)
    pattern = re.compile(_like(like), re.IGNORECASE | re.DOTALL) if like is not None else None
    kept = [row for row in rows if pattern is None or pattern.fullmatch(row["name"])]
    names = {"stream": _STREAM_COLUMNS, "relation": _RELATION_COLUMNS, "query": _QUERY_COLUMNS}[kind]
    return pa.table({name: pa.array([row[name] for row in kept], kind_) for name, kind_ in names.items()})


_STREAM_COLUMNS = {
    "name": pa.string(),
    "using": pa.string(),
    "event_time": pa.string(),
    "slack": pa.string(),
    "rows": pa.int64(),
    "late": pa.int64(),
    "rejected": pa.int64(),
    "punctuation": pa.string(),
}
_RELATION_COLUMNS = {"name": pa.string(), "using": pa.string(), "version": pa.int64()}
_QUERY_COLUMNS = {"name": pa.string(), "state": pa.string(), "answered_to": pa.string(), "query": pa.string()}


def _like(pattern: str) -> str:
    return "".join(".*" if mark == "%" else "." if mark == "_" else re.escape(mark) for mark in pattern)


def _streams(catalog: Catalog, manifest: Manifest) -> list[dict[str, Any]]:
    found = []
    for stream in catalog.streams.values():
        known = manifest.streams.get(stream.name, {})
        found.append(
            {
                "name": stream.name,
                "using": stream.using,
                "event_time": stream.time,
                "slack": render_duration(stream.slack),
                "rows": known.get("rows", 0),
                "late": known.get("late", 0),
                "rejected": known.get("rejected", 0),
                "punctuation": _instant(known.get("punctuation", BEGINNING)),
            }
        )
    return found


def _relations(catalog: Catalog, _: Manifest) -> list[dict[str, Any]]:
    return [
        {"name": r.definition.name, "using": r.definition.using, "version": r.version}
        for r in catalog.relations.values()
    ]


def _queries(catalog: Catalog, manifest: Manifest) -> list[dict[str, Any]]:
    found = []
    operators = make_plan(catalog).operators
    for query in catalog.queries.values():
        place = manifest.operators.get(query.operator_id)
        state = "paused" if query.definition.paused else "registered" if place is None else "live"
        if place is not None and not query.definition.paused:
            stream = operators[query.operator_id].stream
            entries = manifest.lists.get(f"archive:{stream}")
            if entries is not None and place["replayed"] < entries.length:
                state = f"catching up ({place['replayed']} of {entries.length} epochs)"
        closed = place["closed"] if place is not None else BEGINNING
        text = " ".join(query.definition.text.split())
        found.append(
            {"name": query.definition.name, "state": state, "answered_to": _instant(closed), "query": text}
        )
    return found


def _instant(at: int) -> str | None:
    return None if at == BEGINNING else render_instant(at)


def _described(catalog: Catalog, name: str) -> pa.Table:
    schema: Schema
    if (stream := catalog.stream(name)) is not None:
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
    wanted = {"stream": StreamScan, "relation": RelationScan, "query": QueryScan}[kind]
    found = []
    for query in catalog.queries.values():
        scans = [
            node
            for node in every_node(bound(catalog, query))
            if isinstance(node, StreamScan | RelationScan | QueryScan)
        ]
        if any(isinstance(node, wanted) and node.name.lower() == name.lower() for node in scans):
            found.append(query.definition.name)
    return found
