"""EXPLAIN ADAPTIVE of the hot keys of one join as text: how their rows are divided between tasks, since when, and how even the tasks' work is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from headrace.operators.base.group_codes import numbers_of_hashes
from headrace.operators.joins.hot_keys.key_layouts import KeyLayout, SplitKey


def hot_key_lines(
    join: str,
    sides: Sequence[str],
    keys: Sequence[SplitKey],
    loads: Sequence[tuple[int, Sequence[int]]],
    is_integer: bool | None,
) -> Iterator[str]:
    """The keys with layouts of their own; `loads` are the epochs in which tasks had such keys, with the work of each task. `is_integer`:
    whether the key is one integer, which follows from its hash; None: there is no key.
    """
    divided = sum(key.current.parts > 1 for key in keys)
    if not (keys or loads):
        return
    rows = "rows of no key are" if not divided else f"rows of {divided} key{'s'[: divided > 1]} are"
    yield f"join {join}: {rows} divided between tasks"
    for key in keys:
        yield f"  {_in_words(key.key, is_integer)}, since epoch {key.current.since}: {_layout(key.current, sides)}"
        for former in key.former:
            yield f"    and rows from before it: {_layout(former, sides)}"
    edges = sorted({key.current.since for key in keys})
    for since, until in zip([0, *edges], [*edges, None], strict=True):
        period = [
            (epoch, load) for epoch, load in loads if epoch >= since and (until is None or epoch < until)
        ]
        if period:
            yield f"  {_evenness(period)}"


def _in_words(key_hash: int, is_integer: bool | None) -> str:
    if is_integer is None:
        return "all rows"
    if not is_integer:
        return f"the key with hash {key_hash % (1 << 64):016x}"
    return f"key {int(numbers_of_hashes(np.array([key_hash]))[0])}"


def _layout(layout: KeyLayout, sides: Sequence[str]) -> str:
    if layout.parts == 1:
        return "in one task"
    others = " and ".join(name for side, name in enumerate(sides) if side != layout.spread)
    return (
        f"those of {sides[layout.spread]} are in {layout.parts} parts by position, those of {others} in each"
    )


def _evenness(period: Sequence[tuple[int, Sequence[int]]]) -> str:
    """How even the work of the tasks was in some epochs."""
    largest = sum(max(load) for _, load in period)
    mean = sum(sum(load) / len(load) for _, load in period)
    first, last = period[0][0], period[-1][0]
    epochs = f"epoch {first}" if first == last else f"epochs {first} to {last}"
    return f"the largest task has {largest / mean:.2f} of the mean work in {epochs}"
