"""May a stored relation get other rows, or a function another body? Not while rows that come and go are what asks them.

A row of a stream asks once, when it is ingested, and keeps what it found. A row of a relation in FROM asks when it comes and
when it goes: of two versions it would go as another one than it came, and what came would stay for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace

import pyarrow as pa

from headrace.algebra.expressions.expression import Call
from headrace.algebra.windows.user_code import Code
from headrace.algebra.windows.window import CHANGE
from headrace.catalog.catalog import Catalog
from headrace.catalog.definitions import FunctionDefinition
from headrace.errors import UserError
from headrace.operators.base.operator import Operator
from headrace.runtime.home.run_cache import load_relation
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.plan import derived_streams
from headrace.runtime.plan.code_fingerprint import fingerprint
from headrace.store.files.filesystem import Store


def refuse_if_joined_by_changelog(
    catalog: Catalog, plan: EpochPlan, store: Store, name: str, table: pa.Table
) -> None:
    """Raises `UserError` where queries look rows that come and go up in a stored relation, and its rows would be others."""
    stored = catalog.relation(name)
    if stored is None:
        return
    users = {each.query for each in _by_changes(plan) if stored.definition.name in each.relations}
    if users and not load_relation(store, stored.file).equals(table):
        who = ", ".join(sorted(users))
        raise UserError(
            f"the relation '{stored.definition.name}' cannot get other rows while {who} looks up insertions and retractions in it",
            remedy="Join it with the stream, inside the parentheses of FROM: there a row is looked up once and keeps what it found; "
            f"or drop {who} first.",
        )


def refuse_if_called_by_changes(catalog: Catalog, plan: EpochPlan, function: FunctionDefinition) -> None:
    """Raises `UserError` where queries compute rows that come and go by another function of its name."""
    known, name = catalog.functions.get(function.name.lower()), function.name.lower()
    if known is None or is_same(known, function):
        return
    users = {each.query for each in _by_changes(plan) if name in _called(each)}
    if users:
        who = ", ".join(sorted(users))
        raise UserError(
            f"the function '{function.name}' cannot get another body while {who} calls it for insertions and retractions",
            remedy=f"Register it under another name, or drop {who} first.",
        )


def _by_changes(plan: EpochPlan) -> Iterator[Operator]:
    """The operators that read rows that come and go."""
    for operator in plan.operators.values():
        stream = plan.streams[operator.stream]
        read = stream.using == derived_streams.USING and CHANGE in stream.schema.names
        if read or operator.reads_changes:
            yield operator


def is_same(one: FunctionDefinition, other: FunctionDefinition) -> bool:
    """Whether two definitions are of one function: pickles of one body differ, its fingerprint does not."""
    with_fingerprints = [
        replace(each, body=Code(), fingerprint=each.fingerprint or _fingerprint(each))
        for each in (one, other)
    ]
    return replace(with_fingerprints[0], name=other.name) == with_fingerprints[1]


def _fingerprint(function: FunctionDefinition) -> str:
    """That of a function which an older Headrace registered without one."""
    return fingerprint(function.body.load(f"the function '{function.name}'"))


def _called(value: object) -> set[str]:
    """The names of all functions in the expressions of an operator, in lower case."""
    found = {value.function.lower()} if isinstance(value, Call) else set[str]()
    if is_dataclass(value):
        parts = [getattr(value, each.name) for each in fields(value)]
    elif isinstance(value, Mapping):
        parts = list(value.values())
    else:
        parts = list(value) if isinstance(value, tuple | list | frozenset) else []
    return found.union(*map(_called, parts))
