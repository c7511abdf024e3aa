"""Where the scanned rows of hot keys go: to the parts of the layout in force, to be stored, and to those of former layouts, as probes.

Layouts are in force for the scanners that are made in a block of code. Outside such a block (tests) no key is divided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.operators.base.group_codes import Ints, hashes, ints
from headrace.operators.base.operator import SLOT
from headrace.operators.joins.hot_keys.key_layouts import KeyLayout, SplitKey
from headrace.operators.rows.sorted_rows import HASH, Sorted

SplitKeys: TypeAlias = Mapping[str, tuple[SplitKey, ...]]
"""By join, its keys with layouts of their own."""
LAYOUT: Final = "__layout"
"""The column of a probe with the first epoch of the former layout that it is sent to."""
_PROBES: Final = " probes"


def probes_of(section: str) -> str:
    """The section with the rows that are sent to former layouts, by that of the side's rows."""
    return section + _PROBES


def side_section(section: str) -> str:
    """The section of the rows of a side, by that or by the section of its probes."""
    return section.removesuffix(_PROBES)


class Routed(NamedTuple):
    """The rows of a batch in the layouts in force, and as probes of former ones."""

    stored: list[pa.Table]
    probes: list[pa.Table]


def routed(rows: pa.Table, side: int, positions: Ints, keys: Sequence[SplitKey]) -> Routed:
    """The state rows of a side, at these positions of its stream, as the layouts of some keys have them.

    The cost is that of finding the rows of these keys, and of copying theirs.
    """
    key_of = ints(rows, HASH)
    is_moved = np.isin(key_of, np.array([key.key for key in keys], np.int64))
    if not is_moved.any():
        return Routed([rows], [])
    result = Routed([rows.filter(pa.array(~is_moved))] if not is_moved.all() else [], [])
    for key in keys:
        numbers = np.flatnonzero(key_of == key.key)
        if len(numbers):
            result.stored.append(_in_parts(rows, numbers, positions, side, key.current))
            result.probes.extend(_probes(rows, numbers, positions, side, one) for one in key.former)
    return result


def _probes(rows: pa.Table, numbers: Ints, positions: Ints, side: int, former: KeyLayout) -> pa.Table:
    """Some of the rows in the parts of a former layout, which they name."""
    sent = _in_parts(rows, numbers, positions, side, former)
    return sent.append_column(LAYOUT, pa.array(np.full(sent.num_rows, former.since)))


def _in_parts(rows: pa.Table, numbers: Ints, positions: Ints, side: int, layout: KeyLayout) -> pa.Table:
    """Some of the rows in the parts of a layout: a row of the spread side in one, others in all."""
    if side == layout.spread:
        mixed = hashes(pa.array(positions[numbers])).view(np.uint64)
        part: Ints = (mixed % np.uint64(layout.parts)).astype(np.int64)
    else:
        part = np.repeat(np.arange(layout.parts), len(numbers))
        numbers = np.tile(numbers, layout.parts)
    columns = {HASH: np.array(layout.hashes)[part], SLOT: np.array(layout.slots, np.int16)[part]}
    taken = rows.take(pa.array(numbers))
    for name, values in columns.items():
        taken = taken.set_column(taken.column_names.index(name), name, pa.array(values))
    return taken


def share_a_hash(pieces: Sequence[Sorted], keys: Sequence[SplitKey]) -> bool:
    """Whether rows of different keys have one hash: one is that of a part. Their slots differ."""
    parts = np.array([part for key in keys for part in key.hashes], np.int64)
    slots: dict[int, set[int]] = {}
    for piece in pieces:
        low, high = (piece.hash.searchsorted(parts, side).tolist() for side in ("left", "right"))
        for part, first, last in zip(parts.tolist(), low, high, strict=True):
            if first < last:
                slots.setdefault(part, set()).update(
                    ints(piece.table.slice(first, last - first), SLOT).tolist()
                )
    return any(len(found) > 1 for found in slots.values())


_IN_FORCE: ContextVar[SplitKeys] = ContextVar("split_keys", default={})  # noqa: B039 - never changed


@contextmanager
def dividing(keys: SplitKeys) -> Iterator[None]:
    """Layouts for the scanners of joins that are made inside the block."""
    token = _IN_FORCE.set(keys)
    try:
        yield
    finally:
        _IN_FORCE.reset(token)


def split_keys(join: str) -> tuple[SplitKey, ...]:
    """The keys of a join with layouts of their own."""
    return _IN_FORCE.get().get(join, ())
