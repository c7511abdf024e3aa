"""The classes of which epoch plans are made, by the names they have in files, and the codec that writes and reads plans by
these names.

The table names modules, so that a plan of one kind of query imports no other operators. A new operator, partial aggregate or
synopsis gets a line, and so do the classes of its fields; a test finds what is missing. Modules are not stored, so classes may move;
a class that is renamed keeps its stored name by a line in `STORED_AS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from headrace.algebra.windows.user_code import Code
from headrace.store.files.values import Codec

CLASSES: Final[Mapping[str, str]] = {
    "adaptive.constraints.key_promises": "KeyPromise",
    "adaptive.constraints.partner_delays": "PartnerBound",
    "algebra.expressions.aggregates": "AggregateCall NamedAggregate",
    "algebra.expressions.expression": "Call Case Cast Column Constants Literal Named",
    "algebra.quality_of_service": "Importance QualityOfService UtilityGraph",
    "algebra.query": "Ago Revisions SortKey",
    "algebra.windows.window": "Custom",
    "catalog.definitions": "Deduplication FunctionDefinition Progressing StreamConstraint StreamDefinition TimeExpression",
    "catalog.reductions": "Counted Load Reducer Reduction",
    "operators.aggregates.group_by": "Grouped",
    "operators.approximate.approximate_instants": "ApproximateInstants",
    "operators.approximate.approximate_windows": "ApproximateWindows",
    "operators.families.extents": "Extents",
    "operators.joins.changelog_join": "RelationJoin",
    "operators.joins.constrained_join": "ConstrainedJoin Reference",
    "operators.joins.join_aggregate": "AggregatedSide JoinAggregate",
    "operators.joins.join_side": "JoinSpec Side",
    "operators.joins.outer_join": "OuterJoin",
    "operators.joins.side_products": "SideProduct SideSum",
    "operators.joins.sliding_outer_join": "SlidingOuterJoin",
    "operators.joins.window_join": "Grid WindowJoin",
    "operators.on_demand.selection": "Answer Selection WindowClause",
    "operators.output.output_stage": "Finish",
    "operators.output.regrouping": "Regroup",
    "operators.panes.panes": "Panes",
    "operators.panes.window_lengths": "WindowLengths",
    "operators.partials.central_moments": "CoMoments Moments Shape",
    "operators.partials.encoding": "PartialColumn",
    "operators.partials.partial": "Bitwise Count Extreme Sum",
    "operators.partials.synopsis_partial": "Synopsis",
    "operators.partials.time_weighted": "Fading Placed",
    "operators.relations.changelog_projection": "ChangingRows",
    "operators.relations.instant_aggregate": "InstantAggregate",
    "operators.relations.instant_rows": "InstantRows Validity",
    "operators.relations.pass_through": "Passing",
    "operators.row_windows.frame_cuts": "ByDelta ByGap",
    "operators.row_windows.frame_windows": "FrameWindows",
    "operators.row_windows.partitioned_rows": "PartitionedRows",
    "operators.row_windows.row_slides": "RowSlides",
    "operators.row_windows.session_revisions": "RevisingSessions",
    "operators.row_windows.tuple_slides": "TupleSlides",
    "operators.row_windows.user_windows": "UserWindows",
    "operators.rows.row_pipeline": "LookupJoin RowFilter",
    "operators.rows.row_state": "Bounded RowLayout",
    "operators.rows.semijoin": "Membership",
    "operators.time_windows.alternatives": "Alternatives",
    "operators.time_windows.pane_aggregate": "PaneAggregate",
    "operators.time_windows.window_changelog": "WindowChanges",
    "operators.time_windows.window_repair": "Repairing",
    "operators.time_windows.window_revisions": "Revising",
    "operators.time_windows.window_rows": "WindowRows",
    "runtime.messages.epoch_plan": "EpochPlan PlannedOperator Retention",
    "schema": "Field Schema Type",
    "synopses.histograms.canonical_form": "Form",
    "synopses.sketches.distinct_sketch": "DistinctSketch",
    "synopses.sketches.frequent_sketch": "FrequentSketch",
    "synopses.sketches.rank_sketch": "Ranking",
    "synopses.sketches.sampled_ranks": "SampledRanking",
    "synopses.sketches.stable_sketch": "StableSketch",
}
"""Module below `headrace` → the names of its classes that plans are made of."""

STORED_AS: Final[Mapping[str, str]] = {}
"""Place (`package.module:Class`) → stored name, of classes that have another name in the code."""


@cache
def codec() -> Codec:
    """The codec that writes and reads plans."""
    return Codec(places(CLASSES, STORED_AS), apart=Code)


def places(classes: Mapping[str, str], stored_as: Mapping[str, str]) -> dict[str, str]:
    """The place of each class, by stored name. Raises `ValueError` where two of them would have one name."""
    by_name: dict[str, str] = {}
    for module, names in classes.items():
        for name in names.split():
            place = f"headrace.{module}:{name}"
            stored = stored_as.get(place, name)
            if stored in by_name:
                raise ValueError(
                    f"{by_name[stored]} and {place} are both called {stored}: give one of them a name in STORED_AS"
                )
            by_name[stored] = place
    return by_name
