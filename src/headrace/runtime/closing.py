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
from headrace.operators.operator import AT, Operator
from headrace.runtime import derived
from headrace.runtime.blobs import ScanBlob
from headrace.runtime.messages import EpochPlan, ScanReceipt, StateMessage
from headrace.runtime.plans import load_relation
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
        ready = {name: at for name, at in left.items() if _source(plan, name) not in left}
        blobs = [_blob(store, plan, plan.operators[name], found) for name in ready]
        told, failed = peek_all(replace(message, closed=ready), blobs)
        found |= told
        for operator, parts in failed.items():
            rejected[operator] = tuple(reason for part in parts for reason in part.reasons)
        left = {name: at for name, at in left.items() if name not in ready}
    return Closing(found, rejected)


def _source(plan: EpochPlan, operator: str) -> str | None:
    """The operator whose results this one reads; None for one that reads a source."""
    stream = plan.streams[plan.operators[operator].stream]
    return derived.operator_of(stream) if stream.using == derived.USING else None


def _blob(store: Store, plan: EpochPlan, operator: Operator, found: Mapping[str, pa.Table]) -> ScanBlob:
    """What a scan task would send of the closing rows the operator reads."""
    stream = plan.streams[operator.stream]
    rows = found.get(derived.operator_of(stream)) if stream.using == derived.USING else None
    if rows is None or not rows.num_rows:
        return ScanBlob(ScanReceipt(0), {}, {})
    at = flat(rows.column(AT)).to_numpy() - int(stream.options["shift"])
    columns = {name: flat(rows.column(name)) for name in stream.schema.names}
    relations = {name: load_relation(store, plan.relations[name]) for name in operator.relations}
    scanner = operator.scanner(relations)
    scanner.add(Batch(columns, at, np.arange(len(at)) + (1 << 62)))
    scanned = scanner.finish()
    deltas, state = tagged(operator, scanned.deltas), state_name(operator)
    sections = {f"{state}/{name}": table for name, table in deltas.items()}
    rejected = {operator.id: list(scanned.rejected)} if scanned.rejected else {}
    return ScanBlob(ScanReceipt(0, greatest={stream.name: int(at.max())}), rejected, sections)
