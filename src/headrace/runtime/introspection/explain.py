"""EXPLAIN of one registered query or of all, as text, DOT or SVG: the plan in force, with the measurements of the newest
epochs.

Measurements come from the home's `epochs.jsonl`, so a reading process shows the same as the one that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from headrace.catalog.catalog import Catalog
from headrace.language.statements.statement import Form
from headrace.observation import WorkObservation
from headrace.operators.base.operator import Operator
from headrace.operators.families.family import with_stored_layout
from headrace.planner.explain.cost_attribution import Measured
from headrace.planner.explain.diagram import dot, picture
from headrace.planner.explain.diagram_svg import svg
from headrace.planner.explain.operator_text import explain
from headrace.planner.explain.plan_graph import Explained
from headrace.planner.explain.plan_text import all_lines, query_lines
from headrace.planner.explain.work_sharing import Sharing, sharing
from headrace.planner.storage.query_storage import storage_of
from headrace.runtime.backfill.completeness import completeness, newest_plan, plan_in_force
from headrace.runtime.home.home import Home
from headrace.runtime.introspection.describe import backfill_lines
from headrace.runtime.introspection.early_groups import early_group_lines
from headrace.runtime.introspection.epoch_log import last_lines
from headrace.runtime.introspection.quality import load_line, quality_lines
from headrace.runtime.introspection.rotating_metrics import lines_per_rotation, of_operators
from headrace.runtime.introspection.time_class import time_class_of
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.plan import derived_streams
from headrace.runtime.plan.adaptive.key_samples import samples_by_query
from headrace.runtime.plan.adaptive.memory_use import memory_line, memory_lines
from headrace.runtime.plan.bound_queries import bound
from headrace.runtime.plan.epoch_planner import levels
from headrace.runtime.plan.union_streams import NOW_OF, USING, inputs_of
from headrace.runtime.progress.pane_layout import states_in_row_layout
from headrace.runtime.progress.plan_index import index_of
from headrace.runtime.repair.repair_report import repair_lines, repairs_by_query
from headrace.runtime.tasks.scan.groups.reader_groups import groups_of
from headrace.time import render_duration

EPOCHS: Final = 20
"""Measurements are of so many epochs, or of those in which every operator is logged once: older ones do not describe the present."""


def explained(home: Home) -> Explained:
    """The running plan, with its measurements. Operators of a query that was dropped and created again are new ones."""
    catalog = home.newest_catalog()
    return _explained(home, catalog, newest_plan(home, catalog))


def _explained(home: Home, catalog: Catalog, plan: EpochPlan) -> Explained:
    """The plan of a catalog, which other threads may replace at any time, with its measurements."""
    shares = sharing_of(plan, catalog)
    lines = last_lines(Path(home.store.root), max(EPOCHS, lines_per_rotation(len(plan.operators))))
    return Explained(shares, measured(shares, lines), owners_of(plan, catalog), _makers(plan))


def sharing_of(plan: EpochPlan, catalog: Catalog) -> Sharing:
    """The work of a plan, with who shares it."""
    unions = {
        name: [source.stream for source in inputs_of(stream)]
        for name, stream in plan.streams.items()
        if stream.using == USING
    }
    scanned = groups_of(index_of(plan))
    return sharing(plan.operators, _channel_labels(plan), _titles(plan, _names(catalog)), unions, scanned)


def owners_of(plan: EpochPlan, catalog: Catalog) -> dict[str, str]:
    """Each operator's query, by name."""
    names = _names(catalog)
    return {operator: _owner(plan, names, operator) for operator in plan.operators}


def _names(catalog: Catalog) -> dict[str, str]:
    return {query.operator_id: query.definition.name for query in catalog.queries.values()}


def explain_all(home: Home, form: Form = "text") -> str:
    """`EXPLAIN ALL`: everything, as text, for Graphviz or as SVG."""
    catalog = home.newest_catalog()
    plan = newest_plan(home, catalog)
    graph = _explained(home, catalog, plan)
    if form == "text":
        manifest = home.latest()
        used = memory_line(home.store, manifest, plan, catalog)
        return "\n".join([*all_lines(graph), *load_line(manifest), *used])
    return dot(picture(graph)) if form == "dot" else svg(picture(graph))


def explain_query(home: Home, name: str, form: Form = "text") -> str:
    """`EXPLAIN QUERY`: how one query is answered, with whom it shares, and what it costs.

    Raises `UserError` when there is none of that name.
    """
    catalog = home.newest_catalog()
    standing, planned = catalog.require_query(name), newest_plan(home, catalog)
    graph, registered = _explained(home, catalog, planned), standing.definition.name
    if form != "text":
        drawn = picture(graph, registered)
        return dot(drawn) if form == "dot" else svg(drawn)
    operators = planned.operators
    query = bound(catalog, standing)
    chain = [operator_id for operator_id, _ in levels(registered, query, standing.operator_id)]
    pairs = [
        operator_id
        for operator_id in operators
        if standing.operator_id == derived_streams.owner_of(operator_id) and operator_id not in chain
    ]
    pairs += [standing.definition.join] if standing.definition.join in operators else []
    chain += sorted(pairs, key=len)
    row_layout_states = states_in_row_layout(home.latest())
    plans = (explain(with_stored_layout(operators[operator_id], row_layout_states)) for operator_id in chain)
    manifest = home.latest()
    plan = plan_in_force(home, manifest)
    state = completeness(plan, manifest, standing).state
    from_now, is_live = standing.definition.from_now, state in ("live", "emitting")
    read = time_class_of(manifest, query, from_now=from_now, is_live=is_live)
    early = early_group_lines(planned, operators[standing.operator_id])
    filled = [
        *early,
        *read,
        *storage_of(query).lines(),
        *backfill_lines(manifest.find_operator(standing.operator_id)),
    ]
    actions = [f"then {action}" for action in standing.definition.actions]
    stated = (
        () if query.quality is None else quality_lines(query.quality, standing.operator_id, home.latest())
    )
    used = memory_lines(home.store, manifest, planned, catalog, standing)
    sample = samples_by_query(manifest).get(standing.operator_id)
    left_out = [] if sample is None else [sample.sentence]
    repair = repair_lines(repairs_by_query(manifest, plan, catalog).get(standing.definition.name))
    return "\n".join(
        [*plans, *filled, *left_out, *actions, *stated, *repair, *used, *query_lines(graph, registered)]
    )


def _owner(plan: EpochPlan, names: Mapping[str, str], operator: str) -> str:
    """The query to which an operator belongs; a shared join has none, and is called by what it joins."""
    if derived_streams.is_shared_join(operator):
        return f"{plan.operators[operator].query} (shared)"
    return names[derived_streams.owner_of(operator)]


def _channel_labels(plan: EpochPlan) -> dict[str, str]:
    """Operators that read other rows than the accepted ones, with the names of these rows."""
    labels = {}
    for id_, planned in plan.planned.items():
        if planned.revisions is not None:
            within = planned.revisions.within
            labels[id_] = (
                "late rows too" if within is None else f"rows up to {render_duration(within)} late too"
            )
        elif planned.channel != "rows":
            labels[id_] = f"{planned.channel} rows"
    return labels


def _makers(plan: EpochPlan) -> dict[str, str]:
    return {
        name: derived_streams.operator_of(stream)
        for name, stream in plan.streams.items()
        if stream.using == derived_streams.USING
    }


def _titles(plan: EpochPlan, names: Mapping[str, str]) -> dict[str, str]:
    """Titles of the streams of results, and of those that are read together to be joined."""
    titles = {}
    for stream, maker in _makers(plan).items():
        owner = names.get(derived_streams.owner_of(maker), "a dropped query")
        if (producer := plan.operators.get(maker)) is not None and producer.makes_pairs:
            titles[stream] = f"pairs of {_owner(plan, names, maker)}"
        elif NOW_OF in plan.streams[stream].options:
            titles[stream] = f"changes of a relation that {owner} reads"
        else:
            inner = "" if derived_streams.owner_of(maker) == maker else "the SELECT in FROM of "
            titles[stream] = f"results of {inner}{owner}"
    for operator in plan.operators.values():
        if operator.makes_pairs or operator.join_signature:
            titles[operator.stream] = f"{_sides(operator)} of {operator.query} together"
    return titles | _together(plan, titles)


def _together(plan: EpochPlan, titles: Mapping[str, str]) -> dict[str, str]:
    """Titles of relations, or SELECTs, that are the inputs of a set operator."""
    titles_of_unions = {}
    for name, stream in plan.streams.items():
        united = stream.using == USING and name not in titles
        inputs = [titles.get(input_stream.stream) for input_stream in inputs_of(stream)] if united else []
        first = inputs[0] if inputs else None
        if first is not None and inputs == [first] * len(inputs):
            many, time = first.replace("a relation", f"{len(inputs)} relations"), inputs_of(stream)[0].time
            if time:
                titles_of_unions[name] = f"{first} at the times of {time}"
            else:
                titles_of_unions[name] = many.replace("the SELECT", f"{len(inputs)} SELECTs")
    return titles_of_unions


def _sides(operator: Operator) -> str:
    """The sources on the sides of a join, by their names in the query."""
    aliases = (name.partition(".") for name in sorted(operator.columns))
    return " and ".join(dict.fromkeys(alias for alias, dot, _ in aliases if dot))


def measured(shares: Sharing, lines: Iterable[Mapping[str, Any]]) -> Measured | None:
    """Sums of the log's lines about epochs, oldest first; None when none of them measured work."""
    seen = [line for line in lines if "work" in line]
    if not seen:
        return None
    works = [WorkObservation()] * len(shares.works)
    state_bytes = [0] * len(shares.works)
    elsewhere = 0
    for line in seen:
        for key, counters in line["work"].items():
            index, work = shares.place_of(key), WorkObservation(**counters)
            if index is None:
                elsewhere += work.nanoseconds
                continue
            works[index] = works[index].plus(work)
            if shares.works[index].kind == "state":
                state_bytes[index] = work.state_bytes
    sums = of_operators(seen, shares.places)
    operators = {name: observation for name, (observation, _) in sums.items()}
    state_rows = {name: rows for name, (_, rows) in sums.items()}
    rows = sum(line["rows"] for line in seen)
    first, last = seen[0]["epoch"], seen[-1]["epoch"]
    return Measured(len(seen), first, last, rows, works, operators, state_bytes, state_rows, elsewhere)
