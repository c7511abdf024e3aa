"""Which classes is a plan made of, and what are they called in its files?

A class that a registered one names as the type of a field is registered with it. What a field names by a protocol only (an
operator, a partial aggregate, a synopsis) is listed here: a new one gets a line. Where classes live plays no part, so they may move; a class
that is renamed keeps its stored name by a line in `STORED_AS`.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final

from headrace.algebra.users_code import Code
from headrace.operators.approximate_instants import ApproximateInstants
from headrace.operators.approximate_windows import ApproximateWindows
from headrace.operators.central_moments import CoMoments, Moments, Shape
from headrace.operators.changing_rows import ChangingRows
from headrace.operators.frame_windows import FrameWindows
from headrace.operators.instant_aggregate import InstantAggregate
from headrace.operators.instants import InstantRows
from headrace.operators.pane_aggregate import PaneAggregate
from headrace.operators.partials import Count, Extreme, Sum
from headrace.operators.passing import Passing
from headrace.operators.relation_join import RelationJoin
from headrace.operators.revising import Revising
from headrace.operators.revising_sessions import RevisingSessions
from headrace.operators.row_slides import RowSlides
from headrace.operators.selection import Selection
from headrace.operators.synopsis_partial import Synopsis
from headrace.operators.timed_partials import Fading, Placed
from headrace.operators.tuple_slides import TupleSlides
from headrace.operators.user_windows import UserWindows
from headrace.operators.window_changes import WindowChanges
from headrace.operators.window_join import WindowJoin
from headrace.operators.window_rows import WindowRows
from headrace.runtime.messages import EpochPlan
from headrace.store.values import Codec
from headrace.synopses.distinct_sketch import DistinctSketch
from headrace.synopses.frequent_sketch import FrequentSketch
from headrace.synopses.ranked import Ranking
from headrace.synopses.stable_sketch import StableSketch

OPERATORS: Final[tuple[type, ...]] = (
    *(ApproximateInstants, ApproximateWindows, ChangingRows, FrameWindows, InstantAggregate, InstantRows),
    *(PaneAggregate, Passing, RelationJoin, Revising, RevisingSessions, RowSlides, Selection, TupleSlides),
    *(UserWindows, WindowChanges, WindowJoin, WindowRows),
)
PARTIALS: Final[tuple[type, ...]] = (
    *(CoMoments, Count, Extreme, Fading, Moments, Placed, Shape, Sum, Synopsis),
)
SYNOPSES: Final[tuple[type, ...]] = (DistinctSketch, FrequentSketch, Ranking, StableSketch)

STORED_AS: Final[Mapping[type, str]] = {}
"""The stored names of classes that are called otherwise in the code."""


@cache
def codec() -> Codec:
    """What writes and reads plans."""
    return Codec(classes((EpochPlan, *OPERATORS, *PARTIALS, *SYNOPSES)), apart=Code)


def classes(roots: tuple[type, ...]) -> dict[str, type]:
    """By stored name: these classes, and those that they name as the types of their fields.

    Raises `ValueError` where two of them would have one name.
    """
    found: dict[str, type] = {}
    seen, waiting = set[type](), list(reversed(roots))
    while waiting:
        kind = waiting.pop()
        if kind in seen:
            continue
        seen.add(kind)
        name = STORED_AS.get(kind, kind.__name__)
        if name in found:
            raise ValueError(
                f"{found[name]} and {kind} are both called {name}: give one of them a name in STORED_AS"
            )
        found[name] = kind
        waiting += _named_by(kind)
    return found


def _named_by(kind: type) -> Iterator[type]:
    """The classes that a class names as the types of its fields."""
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        for each in fields(kind):
            if each.init:
                yield from _classes_in(hints[each.name])


def _classes_in(hint: Any) -> Iterator[type]:
    if typing.get_origin(hint) is not None:
        for each in typing.get_args(hint):
            yield from _classes_in(each)
    elif isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, Enum)):
        yield hint
