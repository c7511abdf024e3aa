"""The classes of which epoch plans are made, by the names they have in files, and the codec that writes and reads plans by
these names.

A class that is the type of a registered class's field is registered with it. Classes that fields name by a protocol only
(an operator, a partial aggregate, a synopsis) are listed here: a new one gets a line. Modules are not stored, so classes
may move; a class that is renamed keeps its stored name by a line in `STORED_AS`.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final

from headrace.algebra.windows.user_code import Code
from headrace.operators.approximate.approximate_instants import ApproximateInstants
from headrace.operators.approximate.approximate_windows import ApproximateWindows
from headrace.operators.joins.changelog_join import RelationJoin
from headrace.operators.joins.constrained_join import ConstrainedJoin
from headrace.operators.joins.join_aggregate import JoinAggregate
from headrace.operators.joins.outer_join import OuterJoin
from headrace.operators.joins.sliding_outer_join import SlidingOuterJoin
from headrace.operators.joins.window_join import WindowJoin
from headrace.operators.on_demand.selection import Selection
from headrace.operators.output.pass_through import Passing
from headrace.operators.partials.central_moments import CoMoments, Moments, Shape
from headrace.operators.partials.partial import Count, Extreme, Sum
from headrace.operators.partials.synopsis_partial import Synopsis
from headrace.operators.partials.time_weighted import Fading, Placed
from headrace.operators.relations.changelog_projection import ChangingRows
from headrace.operators.relations.instant_aggregate import InstantAggregate
from headrace.operators.relations.instant_rows import InstantRows
from headrace.operators.row_windows.frame_windows import FrameWindows
from headrace.operators.row_windows.row_slides import RowSlides
from headrace.operators.row_windows.session_revisions import RevisingSessions
from headrace.operators.row_windows.tuple_slides import TupleSlides
from headrace.operators.row_windows.user_windows import UserWindows
from headrace.operators.time_windows.alternatives import Alternatives
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.operators.time_windows.window_changelog import WindowChanges
from headrace.operators.time_windows.window_repair import Repairing
from headrace.operators.time_windows.window_revisions import Revising
from headrace.operators.time_windows.window_rows import WindowRows
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.store.files.values import Codec
from headrace.synopses.sketches.distinct_sketch import DistinctSketch
from headrace.synopses.sketches.frequent_sketch import FrequentSketch
from headrace.synopses.sketches.rank_sketch import Ranking
from headrace.synopses.sketches.stable_sketch import StableSketch

OPERATORS: Final[tuple[type, ...]] = (
    *(ApproximateInstants, ApproximateWindows, ChangingRows, FrameWindows, InstantAggregate, InstantRows),
    *(
        ConstrainedJoin,
        JoinAggregate,
        OuterJoin,
        PaneAggregate,
        Passing,
        RelationJoin,
        Alternatives,
        Repairing,
        Revising,
        RevisingSessions,
        RowSlides,
        Selection,
    ),
    *(SlidingOuterJoin, TupleSlides, UserWindows, WindowChanges, WindowJoin, WindowRows),
)
PARTIALS: Final[tuple[type, ...]] = (
    *(CoMoments, Count, Extreme, Fading, Moments, Placed, Shape, Sum, Synopsis),
)
SYNOPSES: Final[tuple[type, ...]] = (DistinctSketch, FrequentSketch, Ranking, StableSketch)

STORED_AS: Final[Mapping[type, str]] = {}
"""Stored names of classes that have another name in the code."""


@cache
def codec() -> Codec:
    """The codec that writes and reads plans."""
    return Codec(classes((EpochPlan, *OPERATORS, *PARTIALS, *SYNOPSES)), apart=Code)


def classes(roots: tuple[type, ...]) -> dict[str, type]:
    """These classes and the types of their fields, by stored name.

    Raises `ValueError` where two of them would have one name.
    """
    by_name: dict[str, type] = {}
    seen, waiting = set[type](), list(reversed(roots))
    while waiting:
        kind = waiting.pop()
        if kind in seen:
            continue
        seen.add(kind)
        name = STORED_AS.get(kind, kind.__name__)
        if name in by_name:
            raise ValueError(
                f"{by_name[name]} and {kind} are both called {name}: give one of them a name in STORED_AS"
            )
        by_name[name] = kind
        waiting += _named_by(kind)
    return by_name


def _named_by(kind: type) -> Iterator[type]:
    """The classes that are types of a class's fields."""
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        for field_ in fields(kind):
            if field_.init:
                yield from _classes_in(hints[field_.name])


def _classes_in(hint: Any) -> Iterator[type]:
    if typing.get_origin(hint) is not None:
        for argument in typing.get_args(hint):
            yield from _classes_in(argument)
    elif isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, Enum)):
        yield hint
