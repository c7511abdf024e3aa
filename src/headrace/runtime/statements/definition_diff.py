"""Differences between a CREATE and an existing definition of its name, as a sentence with both sides of each; and the
refusal of a name that is taken, or of other columns while queries read them.

Equal means equal as parsed: spacing, comments, the case of words and options, and the spelling of a length do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from headrace.catalog.catalog import Catalog
from headrace.catalog.definitions import QueryDefinition
from headrace.errors import NameTaken, UserError
from headrace.runtime.plan.bound_queries import bind_text
from headrace.runtime.statements.action_checks import refuse_if_written
from headrace.runtime.statements.show import users_of
from headrace.schema import Schema
from headrace.time import render_duration

_WORDS: Mapping[str, str] = {
    "schema": "columns",
    "time": "TIMESTAMP BY",
    "time_expression": "TIMESTAMP BY",
    "slack": "SLACK",
    "punctuated_by": "PUNCTUATED BY",
    "progress": "progress",
    "deduplicate": "DEDUPLICATE BY",
    "constraints": "CONSTRAINT",
    "idle_timeout": "IDLE TIMEOUT",
    "max_ahead": "maxAhead",
    "blocks_by": "blocksBy",
    "from_now": "FROM NOW",
    "zone": "timeZone",
    "using": "USING",
    "max_windows_per_row": "maxWindowsPerRow",
    "max_join_rows": "maxJoinRows",
    "join_constraints": "constraints",
    "spill": "spill",
    "actions": "THEN",
}
_LENGTHS = frozenset({"slack", "idle_timeout", "max_ahead", "retain"})
_IGNORED = frozenset(
    {"name", "paused", "continues", "failure", "join", "join_sizes", "join_trees", "reducers"}
)
_LABELS = frozenset({"owner", "tags"})
"""Compared without case; the order of tags does not matter."""


def differences(catalog: Catalog, existing: Any, new: Any) -> str:
    """Each difference as `SLACK (0 SECONDS there, 5 SECONDS here)`; empty when the two definitions are equal."""
    if isinstance(existing, QueryDefinition) and _same_query(catalog, existing, new):
        differing = _fields(existing, new, without={"text", "zone"})
    else:
        differing = _fields(existing, new)
    return ", ".join(f"{what} ({there} there, {here} here)" for what, there, here in differing)


def require_free(catalog: Catalog, name: str, existing: Any, new: Any, replacing: bool) -> None:
    """Require that a name is free, or is that of `existing`, of the same kind, which may be replaced.

    Raises `NameTaken`.
    """
    kind = catalog.kind_of(name)
    if kind is None or (existing is not None and replacing):
        return
    if existing is None:
        raise NameTaken(
            f"there is a {kind} named '{name}' already", remedy="Choose another name, or drop it first."
        )
    raise NameTaken(
        f"the {kind} '{name}' exists and differs in {differences(catalog, existing, new)}",
        remedy="CREATE OR REPLACE takes the new definition; DROP removes the old one.",
    )


def refuse_if_read(catalog: Catalog, kind: str, name: str, what: str = "columns") -> None:
    """State and archive hold rows of the old columns: queries over them cannot continue with others; nor with rows that were
    dropped by old constraints.

    Raises `UserError`.
    """
    if kind == "stream":
        refuse_if_written(catalog, name)
    users = users_of(catalog, kind, name)
    if users:
        raise UserError(
            f"the {kind} '{name}' cannot get other {what} while {', '.join(users)} reads it",
            remedy="Drop these queries first, or give the new one another name.",
        )


def _fields(existing: Any, new: Any, without: set[str] | None = None) -> Iterator[tuple[str, str, str]]:
    for field in fields(existing):
        one, other = getattr(existing, field.name), getattr(new, field.name)
        if (
            field.name in _IGNORED
            or field.name in (without or ())
            or _folded(field.name, one) == _folded(field.name, other)
        ):
            continue
        if isinstance(one, Mapping):
            yield from _options(one, other)
            continue
        render = _renderer_of(field.name)
        yield _WORDS.get(field.name, field.name), render(one), render(other)


def _options(existing: Mapping[str, str], new: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    there = {name.lower(): value for name, value in existing.items()}
    here = {name.lower(): value for name, value in new.items()}
    spelled = {name.lower(): name for name in (*new, *existing)}
    for name in sorted(there.keys() | here.keys()):
        if there.get(name) != here.get(name):
            yield f"option {spelled[name]}", _quoted(there.get(name)), _quoted(here.get(name))


def _folded(name: str, value: Any) -> Any:
    """The form in which two values are compared: names of options and formats without case."""
    if isinstance(value, Mapping):
        return {option.lower(): item for option, item in value.items()}
    if name in _LABELS and value is not None:
        return sorted(item.casefold() for item in ([value] if isinstance(value, str) else value))
    return value.lower() if name == "using" else value


def _renderer_of(name: str) -> Callable[[Any], str]:
    if name in _LENGTHS:
        return lambda length: "none" if length is None else render_duration(length)
    if name == "spill":
        return lambda length: "ALL" if length is None else render_duration(length)
    if name == "schema":
        return _columns
    if name == "tags":
        return lambda tags: ", ".join(tags) or "none"
    if name == "constraints":
        return lambda constraints: ", ".join(map(str, constraints)) or "none"
    if name == "actions":
        return lambda actions: " THEN ".join(map(str, actions)) or "none"
    return _quoted if name == "text" else lambda value: "none" if value is None else str(value)


def _columns(schema: Schema) -> str:
    return ", ".join(f"{field.name} {field.type.name}" for field in schema)


def _quoted(text: str | None) -> str:
    return "none" if text is None else f"'{' '.join(text.split())}'"


def _same_query(catalog: Catalog, one: QueryDefinition, other: QueryDefinition) -> bool:
    """Whether two texts have one meaning. A text that no longer binds equals only itself."""
    if (one.text, one.zone) == (other.text, other.zone):
        return True
    try:
        return bind_text(catalog, one.text, one.zone) == bind_text(catalog, other.text, other.zone)
    except UserError:
        return False
