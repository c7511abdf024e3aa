"""Guards of updates: a stored relation is not refreshed, nor a function replaced, while a query uses it for a changelog.

A row of a stream is looked up once, when it is ingested, and keeps the result. A row of a changelog is looked up when it is
inserted and when it is retracted: with two versions the retraction would not match, and the insertion would stay.
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
    """Raises `UserError` where queries look up rows of a changelog in a stored relation whose rows would change."""
    stored = catalog.relation(name)
    if stored is None:
        return
    users = {reader.query for reader in _by_changes(plan) if stored.definition.name in reader.relations}
    if users and not load_relation(store, stored.file).equals(table):
        queries = ", ".join(sorted(users))
        raise UserError(
            f"the relation '{stored.definition.name}' cannot be refreshed while {queries} looks up insertions and "
            "retractions in it",
            remedy="Join it with the stream, inside the parentheses of FROM: there a row is looked up once and keeps the "
            f"result; or drop {queries} first.",
        )


def refuse_if_called_by_changes(catalog: Catalog, plan: EpochPlan, function: FunctionDefinition) -> None:
    """Raises `UserError` where queries compute a changelog by another function of its name."""
    previous, name = catalog.functions.get(function.name.lower()), function.name.lower()
    if previous is None or is_same(previous, function):
        return
    users = {reader.query for reader in _by_changes(plan) if name in _called(reader)}
    if users:
        queries = ", ".join(sorted(users))
        raise UserError(
            f"the function '{function.name}' cannot be replaced while {queries} calls it for insertions and retractions",
            remedy=f"Register it under another name, or drop {queries} first.",
        )


def _by_changes(plan: EpochPlan) -> Iterator[Operator]:
    """The operators that read a changelog."""
    for operator in plan.operators.values():
        stream = plan.streams[operator.stream]
        read = stream.using == derived_streams.USING and CHANGE in stream.schema.names
        if read or operator.reads_changes:
            yield operator


def is_same(one: FunctionDefinition, other: FunctionDefinition) -> bool:
    """Whether two definitions are of one function: pickles of one body differ, its fingerprint does not."""
    with_fingerprints = [
        replace(definition, body=Code(), fingerprint=definition.fingerprint or _fingerprint(definition))
        for definition in (one, other)
    ]
    return replace(with_fingerprints[0], name=other.name) == with_fingerprints[1]


def _fingerprint(function: FunctionDefinition) -> str:
    """The fingerprint of a function that an older version registered without one."""
    return fingerprint(function.body.load(f"the function '{function.name}'"))


def _called(value: object) -> set[str]:
    """The names of all functions in the expressions of an operator, in lower case."""
    names = {value.function.lower()} if isinstance(value, Call) else set[str]()
    if is_dataclass(value):
        parts = [getattr(value, field_.name) for field_ in fields(value)]
    elif isinstance(value, Mapping):
        parts = list(value.values())
    else:
        parts = list(value) if isinstance(value, tuple | list | frozenset) else []
    return names.union(*map(_called, parts))
