"""The provisional end of a run: what every query would answer if the streams ended here. Nothing is written.

Queries over queries see the closing answers of those they read, so they are asked level by level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headrace.operators.batch import Batch
from headrace.operators.family import state_name, tagged
from headrace.operators.grouping import flat
from headrace.operators.members import placed
from headrace.operators.operator import AT, Operator
from headrace.runtime import derived
from headrace.runtime.blobs import ScanBlob
from headrace.runtime.messages import EpochPlan, ScanReceipt, StateMessage
from headrace.runtime.plans import load_relation
from headrace.runtime.several import members_of
from headrace.runtime.state import peek_all
from headrace.store.filesystem import Store


@dataclass(frozen=True, slots=True)
class Closing:
    """By operator: the closing rows, and for each row on which an expression failed the reason."""

    answers: Mapping[str, pa.Table]
    rejected: Mapping[str, tuple[str, ...]]


def close(store: Store, plan: EpochPlan, message: StateMessage) -> Closing:
    """What all operators say; `message` asks all of them to close."""
    found: dict[str, pa.Table] = {}
    rejected: dict[str, tuple[str, ...]] = {}
    left = dict(message.closed)
    while left:
        ready = {name: at for name, at in left.items() if not _sources(plan, name) & left.keys()}
        blobs = [_blob(store, plan, plan.operators[name], found) for name in ready]
        told, failed = peek_all(replace(message, closed=ready), blobs)
        found |= told
        for operator, parts in failed.items():
            rejected[operator] = tuple(reason for part in parts for reason in part.reasons)
        left = {name: at for name, at in left.items() if name not in ready}
    return Closing(found, rejected)


def _sources(plan: EpochPlan, operator: str) -> set[str]:
    """The operators whose results this one reads; none for one that reads sources alone."""
    members = members_of(plan.streams[plan.operators[operator].stream])
    streams = [plan.streams[each.stream] for each in members]
    return {derived.operator_of(stream) for stream in streams if stream.using == derived.USING}


def _blob(store: Store, plan: EpochPlan, operator: Operator, found: Mapping[str, pa.Table]) -> ScanBlob:
    """What a scan task would send of the closing rows the operator reads."""
    relations = {name: load_relation(store, plan.relations[name]) for name in operator.relations}
    scanner, greatest = operator.scanner(relations), dict[str, int]()
    for number, member in enumerate(members_of(plan.streams[operator.stream])):
        stream = plan.streams[member.stream]
        rows = found.get(derived.operator_of(stream)) if stream.using == derived.USING else None
        if rows is None or not rows.num_rows:
            continue
        at = flat(rows.column(AT)).to_numpy() - int(stream.options["shift"])
        columns = {among: flat(rows.column(own)) for own, among in member.columns}
        position = placed(np.arange(len(at)) + (1 << 62), number)
        scanner.add(Batch(columns, at, position))
        greatest[stream.name] = int(at.max())
    if not greatest:
        return ScanBlob(ScanReceipt(0), {}, {})
    scanned = scanner.finish()
    deltas, state = tagged(operator, scanned.deltas), state_name(operator)
    sections = {f"{state}/{name}": table for name, table in deltas.items()}
    rejected = {operator.id: list(scanned.rejected)} if scanned.rejected else {}
    return ScanBlob(ScanReceipt(0, greatest=greatest), rejected, sections)
