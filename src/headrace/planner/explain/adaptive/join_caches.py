"""EXPLAIN ADAPTIVE of the caches of one join as text: which side looks up one, what that saves, and since when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from headrace.observation import CacheObservation
from headrace.planner.explain.plan_graph import percent_of, rows_of


def cache_lines(
    sides: Sequence[str],
    histories: Mapping[int, Sequence[tuple[int, CacheObservation]]],
    chosen: Mapping[int, Sequence[int]],
) -> Iterator[str]:
    """Each side that looks up a cache, or did; `chosen` are those of the next epoch."""
    for side, name in enumerate(sides):
        history = histories.get(side, ())
        if side not in chosen and not any(seen.lookups for _, seen in history):
            continue
        others = ", ".join(sides[other] for other in range(len(sides)) if other != side)
        state = "look up" if side in chosen else "no longer look up"
        yield f"  new rows of {name} {state} the combinations of {others} in a cache"
        lines, without = list[str](), "an unknown number"
        for _, run in groupby(history, key=lambda entry: entry[1].lookups > 0):
            (first, total), *more = run
            last = first
            for epoch, seen in more:
                last, total = epoch, total.plus(seen)
            if total.measured:
                without = f"{total.compared / total.measured:.3g}"
            epochs = f"epoch {first}" if first == last else f"epochs {first} to {last}"
            lines.append(f"    {epochs}: {_figures(total, without)}")
        yield from reversed(lines)


def _figures(seen: CacheObservation, without: str) -> str:
    """What was compared for a row with the cache, or without, as measured last."""
    if not seen.lookups:
        missing = percent_of(seen.missing / max(1, seen.rows))
        return (
            f"without a cache, {rows_of(seen.rows)} rows; {without} comparisons a row; {missing} would miss"
        )
    compared = (seen.matched + seen.joined + seen.changed) / seen.lookups
    return (
        f"{rows_of(seen.lookups)} look-ups, {percent_of(seen.hits / seen.lookups)} hit; "
        f"{compared:.3g} comparisons a row, of {without} without"
    )
