"""May a stored relation get other rows? Not while rows that come and go are looked up in it.

A row of a stream is looked up once, when it is ingested, and keeps what it found. A row of a relation in FROM is looked up when it
comes and when it goes: in two versions it would go as another one than it came, and what came would stay for ever.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.algebra.windows import CHANGE
from headrace.catalog.catalog import Catalog
from headrace.errors import UserError
from headrace.runtime import derived
from headrace.runtime.messages import EpochPlan
from headrace.runtime.plans import load_relation
from headrace.store.filesystem import Store


def refuse_if_looked_up_by_changes(
    catalog: Catalog, plan: EpochPlan, store: Store, name: str, table: pa.Table
) -> None:
    """Raises `UserError` where queries look rows that come and go up in a stored relation, and its rows would be others."""
    stored = catalog.relation(name)
    if stored is None:
        return
    users = {
        operator.query
        for operator in plan.operators.values()
        if stored.definition.name in operator.relations
        if plan.streams[operator.stream].using == derived.USING
        if CHANGE in plan.streams[operator.stream].schema.names
    }
    if users and not load_relation(store, stored.file).equals(table):
        who = ", ".join(sorted(users))
        raise UserError(
            f"the relation '{stored.definition.name}' cannot get other rows while {who} looks rows up in it that come and go",
            remedy="Join it with the stream, inside the parentheses of FROM: there a row is looked up once and keeps what it found; "
            f"or drop {who} first.",
        )
