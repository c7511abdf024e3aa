"""Writer of the CREATE QUERY statement of a query's definition; parsed again, it is the same definition."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.catalog.definitions import ActionDefinition, QueryDefinition
from headrace.language.parser.quoting import identifier, string
from headrace.time import render_duration


def create_query_text(query: QueryDefinition) -> str:
    """The statement."""
    options = {} if query.retain is None else {"retain": render_duration(query.retain)}
    options |= {} if query.owner is None else {"owner": query.owner}
    options |= {} if query.sharing else {"sharing": "off"}
    if query.tags:
        options["tags"] = ", ".join(query.tags)
    if query.materialize is not None:
        options["materialize"] = query.materialize
    if query.max_windows_per_row is not None:
        options["maxWindowsPerRow"] = str(query.max_windows_per_row)
    if query.max_join_rows is not None:
        options["maxJoinRows"] = str(query.max_join_rows)
    if query.join_constraints != "declared":
        options["constraints"] = query.join_constraints
    if query.spill != 0:
        options["spill"] = "ALL" if query.spill is None else render_duration(query.spill)
    if query.zone != "UTC":
        options["timeZone"] = query.zone
    clauses = f"{' FROM NOW' if query.from_now else ''}{options_text(options)}"
    return f"CREATE QUERY {identifier(query.name)}{clauses} AS {query.text}{''.join(map(_action, query.actions))}"


def _action(action: ActionDefinition) -> str:
    verb = {"call": "CALL", "notify": "NOTIFY"}.get(action.kind, "WRITE TO")
    target = identifier(action.target) if action.kind == "stream" else string(action.target)
    return f"\n  THEN {verb} {target}{options_text(dict(action.options)).replace('OPTIONS', 'WITH', 1)}"


def options_text(options: Mapping[str, str]) -> str:
    """` OPTIONS (key 'value', …)`; nothing where there are none."""
    return (
        f" OPTIONS ({', '.join(f'{string(key)} {string(value)}' for key, value in options.items())})"
        if options
        else ""
    )
