"""Rows in the parts of former layouts of hot keys: which stored probes count, and where new ones find combinations.

A combination is made in the earliest of the layouts of its rows. In a former layout rows are its *own*, stored while it was in force, or probes, which
are the own rows of later ones. So those combinations count there that have an own row. Each has one first side whose row is an own one: rows of
the sides before it are probes, those of the sides after it are either. New rows are always probes. They search once for each side that may be this first
one, beginning with its own rows, which become fewer as they leave their windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.operators.base.group_codes import ints
from headrace.operators.joins.hot_keys.key_layouts import SplitKey
from headrace.operators.joins.hot_keys.routing import LAYOUT
from headrace.operators.joins.probing.stems import Stem
from headrace.operators.rows.sorted_rows import HASH


def of_former_layouts(probes: pa.Table, keys: Sequence[SplitKey]) -> pa.Table:
    """Those stored probes that were sent to layouts that have not ended; one that is in force again is another layout."""
    former = [layout for key in keys for layout in key.former]
    if not former:
        return probes.slice(0, 0)
    hashes = np.array([part for layout in former for part in layout.hashes], np.int64)
    since = np.array([layout.since for layout in former for _ in layout.hashes], np.int64)
    order = hashes.argsort()
    hashes, since = hashes[order], since[order]
    sent_to = ints(probes, HASH)
    place = np.minimum(hashes.searchsorted(sent_to), len(hashes) - 1)
    counts = (hashes[place] == sent_to) & (since[place] == ints(probes, LAYOUT))
    return probes if counts.all() else probes.filter(pa.array(counts))


def with_own_rows(
    own: Mapping[int, Stem], probes: Mapping[int, Stem], side: int
) -> Iterator[tuple[int, dict[int, Stem]]]:
    """For each other side that has own rows, as the first side that does: it, and what new probes of a side search of all others."""
    others = [other for other in own if other != side]
    for first in others:
        if own[first].rows:
            yield first, {other: _searched(own[other], probes[other], other - first) for other in others}


def _searched(own: Stem, probes: Stem, after: int) -> Stem:
    """The rows of a side before, at or after the first one with an own row."""
    if after == 0:
        return own
    return probes if after < 0 else Stem((*own.pieces, *probes.pieces), own.longest)
