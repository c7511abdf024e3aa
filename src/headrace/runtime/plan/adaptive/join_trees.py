"""Trees of joins that change while they run: the choice after every epoch, by what the tree in force did; the entries of the query log by
which another tree grows, comes into force or is given up; and the progress of a query that reads another tree.

A tree that grows stores the rows that arrive from then on, and emits nothing. Once no earlier row can be joined with a later one it has all
that its joins need: it comes into force, and the former one is dropped. Both are plan versions at an epoch, in the query log, so that a
restart finds the same trees; what they were chosen by is in memory only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from headrace.adaptive.joins.join_trees import Rows, Stage, Tree, TreeGraph
from headrace.adaptive.joins.tree_choice import TreeChoice
from headrace.catalog.catalog import Catalog, CatalogQuery
from headrace.catalog.definition_json import settings_to_json
from headrace.catalog.definitions import JoinTree, QueryDefinition, StreamDefinition
from headrace.dataclass import dataclass
from headrace.observation import DelayObservation
from headrace.overload.memory import MemoryControl
from headrace.planner.joins.stream_joins import tree_graph
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.task_messages import StateReceipt
from headrace.runtime.plan import derived_streams
from headrace.runtime.plan.adaptive.overload_control import MEMORY
from headrace.runtime.plan.adaptive.partner_bounds import observed_delays
from headrace.runtime.plan.bound_queries import bound
from headrace.runtime.plan.derived_streams import tree_of
from headrace.store.logs.committed import OperatorProgress
from headrace.store.logs.manifest import Manifest
from headrace.time import FOREVER

MOST: Final = 8
"""Trees of one query that its definition remembers."""


def joins_of(operator: str, tree: JoinTree | None, count: int) -> list[str]:
    """The joins of a tree of a query, innermost first; None: of its registration."""
    below = derived_streams.joins_of_tree(operator, 0 if tree is None else tree.number)
    names = [below(operator)]
    while len(names) < count:
        names.append(below(names[-1]))
    return names[::-1]


def graph_of(catalog: Catalog, query: CatalogQuery) -> TreeGraph | None:
    """What the choice of a query's tree needs; None where its joins have one tree for good."""
    definition = query.definition
    if definition.join or definition.max_join_rows is not None or definition.join_constraints == "find":
        return None
    return tree_graph(bound(catalog, query), definition.join_sizes)


def readers_moved(manifest: Manifest, new: Iterable[StreamDefinition]) -> dict[str, OperatorProgress]:
    """The progress of queries that read another tree than in the epoch before, of which they have read all; `new` are streams of the plan
    that the manifest lacks.
    """
    moved = {}
    for stream in new:
        join = stream.name.removeprefix("@")
        reader = derived_streams.owner_of(join)
        if join in manifest.operators and join == derived_streams.joins_of_tree(reader, tree_of(join))(
            reader
        ):
            progress = manifest.find_operator(reader)
            if progress is not None and tree_of(join):
                moved[reader] = replace(progress, replayed=0, follows="")
    return moved


def is_complete(
    manifest: Manifest, plan: EpochPlan, name: str, tree: Sequence[str], graph: TreeGraph
) -> bool:
    """Whether a tree that grows may come into force: all operators have read all, and no row from before it can be joined any more."""
    names = [operator for operator in plan.operators if derived_streams.owner_of(operator) == name]
    if any(
        operator not in manifest.operators or not manifest.operators[operator].follows for operator in names
    ):
        return False
    since = max(manifest.operators[operator].complete_since for operator in tree)
    return since + graph.longest <= manifest.operator(name).emitted_to < FOREVER


def is_short_of_memory(manifest: Manifest) -> bool:
    """Whether a memory budget makes queries give something up: two trees store rows twice."""
    fact = manifest.facts.get(MEMORY)
    return fact is not None and not MemoryControl.from_json(fact["control"]).is_idle


@dataclass(slots=True)
class _Known:
    """A query's choice, the rows that its joins had stored when they were observed last, and whether the last epoch was."""

    graph: TreeGraph | None
    choice: TreeChoice | None
    number: int = 0
    stored: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def follow(self, tree: JoinTree | None) -> TreeChoice:
        """The choice for the tree in force."""
        assert self.choice is not None, "a query has a choice if it has a graph"
        number = 0 if tree is None else tree.number
        if tree is not None and number != self.number:
            self.choice.put_in_force(tree.groups, tree.believed)
            self.number = number
        return self.choice


@dataclass(slots=True)
class JoinTrees:
    """The choices of all queries with several joins, in the driver."""

    _known: dict[str, _Known] = field(default_factory=dict)
    _observed: set[str] = field(default_factory=set)
    """Queries whose joins had rows in the last epoch."""

    def take(self, receipts: Sequence[StateReceipt], catalog: Catalog, plan: EpochPlan) -> None:
        """Take in an epoch. It costs as much as there are joins that had rows."""
        delays = observed_delays(receipts)
        self._observed = set()
        for name in delays:
            owner = derived_streams.owner_of(name)
            if owner in plan.operators and name != derived_streams.inner_of(owner):
                self._observed.add(owner)
        for owner in self._observed:
            query = catalog.query(plan.operators[owner].query)
            if query is not None and query.operator_id == owner:
                self._take(query, catalog, delays, receipts)
        self._known = {name: known for name, known in self._known.items() if name in plan.operators}

    def _take(
        self,
        query: CatalogQuery,
        catalog: Catalog,
        delays: Mapping[str, DelayObservation],
        receipts: Sequence[StateReceipt],
    ) -> None:
        known = self._known.get(query.operator_id)
        if known is None:
            graph = graph_of(catalog, query)
            choice = None if graph is None else TreeChoice(graph, graph.registered)
            known = self._known[query.operator_id] = _Known(graph, choice)
        if known.graph is None:
            return
        tree = query.definition.join_tree
        choice = known.follow(tree)
        stages = list(
            _stages(joins_of(query.operator_id, tree, len(choice.tree)), known.stored, delays, receipts)
        )
        if len(stages) == len(choice.tree):
            choice.take(stages)

    def entries(self, manifest: Manifest, catalog: Catalog, plan: EpochPlan) -> list[dict[str, Any]]:
        """Entries of the query log after a published epoch."""
        entries = []
        for owner in sorted(self._observed):
            known, operator = self._known.get(owner), plan.operators.get(owner)
            if known is None or known.graph is None or operator is None:
                continue
            query = catalog.query(operator.query)
            if query is None or query.operator_id != owner or query.definition.paused:
                continue
            trees = self._after(known, query, manifest, plan)
            if trees != query.definition.join_trees:
                entries.append(entry_of(query.definition, trees))
        self._observed = set()
        return entries

    def _after(
        self, known: _Known, query: CatalogQuery, manifest: Manifest, plan: EpochPlan
    ) -> tuple[JoinTree, ...]:
        """The trees of a query from now on."""
        definition, graph, choice = query.definition, known.graph, known.choice
        assert graph is not None
        assert choice is not None
        growing, trees = definition.growing_tree, definition.join_trees
        if growing is not None:
            names = joins_of(query.operator_id, growing, len(growing.groups))
            if is_complete(manifest, plan, query.operator_id, names, graph):
                return (*trees[:-1], replace(growing, since=manifest.epoch))
            is_worth_it = choice.still_better(growing.groups) and not is_short_of_memory(manifest)
            return trees if is_worth_it else trees[:-1]
        if is_short_of_memory(manifest):
            return trees
        if not manifest.operators[query.operator_id].follows or (better := choice.better()) is None:
            return trees
        return growing_trees(
            definition, graph.registered, better, manifest.epoch, choice.expected(better), choice.measured
        )


def growing_trees(
    definition: QueryDefinition,
    registered: Tree,
    tree: Tree,
    epoch: int,
    believed: float = 0.0,
    instead: float = 0.0,
) -> tuple[JoinTree, ...]:
    """The trees of a query of which another one grows after an epoch."""
    trees = definition.join_trees or (JoinTree(0, registered, 0),)
    return (*trees[-MOST + 1 :], JoinTree(epoch, tree, None, round(believed), round(instead)))


def entry_of(definition: QueryDefinition, trees: tuple[JoinTree, ...]) -> dict[str, Any]:
    """The entry of the query log that gives a query these trees."""
    return {"do": "set", "name": definition.name, "settings": settings_to_json({"join_trees": trees})}


def _stages(
    names: Sequence[str],
    stored: dict[str, tuple[int, ...]],
    delays: Mapping[str, DelayObservation],
    receipts: Sequence[StateReceipt],
) -> Iterator[Stage]:
    """What each join of a tree did in an epoch; none of those that never had rows."""
    for name in names:
        seen = delays.get(name)
        if seen is not None:
            stored[name] = tuple(sum(both) for both in zip(seen.stored, seen.rows, strict=True))
            sides = tuple(Rows(*both) for both in zip(seen.stored, seen.rows, strict=True))
        elif name in stored:
            sides = tuple(Rows(rows, 0) for rows in stored[name])
        else:
            return
        made = sum(receipt.operators[name].results for receipt in receipts if name in receipt.operators)
        yield Stage(sides, made)
