"""EXPLAIN: the plan in force, with what the newest epochs have measured of it.

Figures come from the home's `epochs.jsonl`, so a process that only looks tells the same as the one that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from headrace.language.statements.statement import Form
from headrace.observation import WorkObservation
from headrace.operators.base.operator import Operator
from headrace.operators.families.family import as_it_runs
from headrace.planner.explain.cost_attribution import Measured
from headrace.planner.explain.diagram import dot, picture
from headrace.planner.explain.diagram_svg import svg
from headrace.planner.explain.operator_text import explain
from headrace.planner.explain.plan_graph import Explained
from headrace.planner.explain.plan_text import all_lines, query_lines
from headrace.planner.explain.work_sharing import Sharing, sharing
from headrace.runtime.backfill.completeness import plan_in_force
from headrace.runtime.epoch.pane_layout import states_in_row_layout
from headrace.runtime.home.home import Home
from headrace.runtime.introspection.describe import backfill_lines
from headrace.runtime.introspection.epoch_log import last_lines
from headrace.runtime.introspection.rotating_metrics import lines_per_rotation, of_operators
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.plan import derived_streams
from headrace.runtime.plan.bound_queries import bound
from headrace.runtime.plan.epoch_planner import levels, make_plan
from headrace.runtime.plan.union_streams import NOW_OF, USING, inputs_of
from headrace.time import render_duration

EPOCHS: Final = 20
"""Figures are of so many epochs, or of those in which all operators have their turn: what was measured long ago says little of now."""


def explained(home: Home) -> Explained:
    """All that runs, with what was measured of it. Operators of one query that were dropped and made anew are others."""
    home.refresh()
    plan = _plan(home)
    names = {query.operator_id: query.definition.name for query in home.catalog.queries.values()}
    owners = {each: names[derived_streams.owner_of(each)] for each in plan.operators}
    met = {
        name: [each.stream for each in inputs_of(stream)]
        for name, stream in plan.streams.items()
        if stream.using == USING
    }
    shares = sharing(plan.operators, _channel_labels(plan), _titles(plan, names), met)
    lines = last_lines(Path(home.store.root), max(EPOCHS, lines_per_rotation(len(plan.operators))))
    return Explained(shares, measured(shares, lines), owners, _makers(plan))


def explain_all(home: Home, form: Form = "text") -> str:
    """`EXPLAIN ALL`: everything, as text, for Graphviz or as SVG."""
    told = explained(home)
    if form == "text":
        return "\n".join(all_lines(told))
    return dot(picture(told)) if form == "dot" else svg(picture(told))


def explain_query(home: Home, name: str, form: Form = "text") -> str:
    """`EXPLAIN QUERY`: how one query is answered, with whom it shares, and what it costs.

    Raises `UserError` when there is none of that name.
    """
    home.refresh()
    standing = home.catalog.require_query(name)
    told, known = explained(home), standing.definition.name
    if form != "text":
        drawn = picture(told, known)
        return dot(drawn) if form == "dot" else svg(drawn)
    operators = _plan(home).operators
    query = bound(home.catalog, standing)
    chain = [each for each, _ in levels(known, query, standing.operator_id)]
    pairs = [
        each
        for each in operators
        if derived_streams.owner_of(each) == standing.operator_id and each not in chain
    ]
    chain += sorted(pairs, key=len)
    row_layout_states = states_in_row_layout(home.latest())
    plans = (explain(as_it_runs(operators[each], row_layout_states)) for each in chain)
    filled = backfill_lines(home.latest().operators.get(standing.operator_id))
    return "\n".join([*plans, *filled, *query_lines(told, known)])


def _plan(home: Home) -> EpochPlan:
    """The plan in force where it is the newest: no query has to be bound to tell of thousands."""
    manifest = home.latest()
    if manifest.plan and manifest.querylog == home.catalog.position:
        return plan_in_force(home, manifest)
    return make_plan(home.catalog)


def _channel_labels(plan: EpochPlan) -> dict[str, str]:
    """Operators that see other rows than the accepted ones, by what these are called."""
    found = {}
    for id_, planned in plan.planned.items():
        if planned.revisions is not None:
            within = planned.revisions.within
            found[id_] = (
                "late rows too" if within is None else f"rows up to {render_duration(within)} late too"
            )
        elif planned.channel != "rows":
            found[id_] = f"{planned.channel} rows"
    return found


def _makers(plan: EpochPlan) -> dict[str, str]:
    return {
        name: derived_streams.operator_of(stream)
        for name, stream in plan.streams.items()
        if stream.using == derived_streams.USING
    }


def _titles(plan: EpochPlan, names: Mapping[str, str]) -> dict[str, str]:
    """What people call the streams of results, and those that are read together to be joined."""
    found = {}
    for stream, maker in _makers(plan).items():
        owner = names.get(derived_streams.owner_of(maker), "a query that is gone")
        if (known := plan.operators.get(maker)) is not None and known.makes_pairs:
            found[stream] = f"pairs of {owner}"
        elif NOW_OF in plan.streams[stream].options:
            found[stream] = f"changes of a relation that {owner} reads"
        else:
            inner = "" if derived_streams.owner_of(maker) == maker else "the SELECT in FROM of "
            found[stream] = f"results of {inner}{owner}"
    for operator in plan.operators.values():
        if operator.makes_pairs:
            found[operator.stream] = f"{_sides(operator)} of {operator.query} together"
    return found | _together(plan, found)


def _together(plan: EpochPlan, titles: Mapping[str, str]) -> dict[str, str]:
    """What people call relations, or SELECTs, that a set operator puts together."""
    found = {}
    for name, stream in plan.streams.items():
        united = stream.using == USING and name not in titles
        members = [titles.get(each.stream) for each in inputs_of(stream)] if united else []
        first = members[0] if members else None
        if first is not None and members == [first] * len(members):
            many = first.replace("a relation", f"{len(members)} relations")
            found[name] = many.replace("the SELECT", f"{len(members)} SELECTs")
    return found


def _sides(operator: Operator) -> str:
    """The sources that a join has on its sides, as the query calls them."""
    aliases = (name.partition(".") for name in sorted(operator.columns))
    return " and ".join(dict.fromkeys(alias for alias, dot, _ in aliases if dot))


def measured(shares: Sharing, lines: Iterable[Mapping[str, Any]]) -> Measured | None:
    """Lines of the log about epochs, oldest first, added up; None when none of them measured work."""
    seen = [line for line in lines if "work" in line]
    if not seen:
        return None
    works = [WorkObservation()] * len(shares.works)
    state_bytes = [0] * len(shares.works)
    elsewhere = 0
    for line in seen:
        for key, told in line["work"].items():
            place, work = shares.place_of(key), WorkObservation(**told)
            if place is None:
                elsewhere += work.nanoseconds
                continue
            works[place] = works[place].plus(work)
            if shares.works[place].kind == "state":
                state_bytes[place] = work.state_bytes
    found = of_operators(seen, shares.places)
    operators = {name: own for name, (own, _) in found.items()}
    state_rows = {name: rows for name, (_, rows) in found.items()}
    rows = sum(line["rows"] for line in seen)
    first, last = seen[0]["epoch"], seen[-1]["epoch"]
    return Measured(len(seen), first, last, rows, works, operators, state_bytes, state_rows, elsewhere)
