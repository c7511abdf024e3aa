"""Batches of changes of the catalog, logged and planned together: those of a script, ten thousand at the cost of what each
changes, and those of several threads (group commit). Meanwhile the catalog is shown with them, a new query gets its shared
join and the built-in streams that it is the first to read, and one that reads itself is refused.

Changes that follow one another wait, and are logged and planned together. Until then readers of `catalog` see them
applied. Nothing here walks through the queries that are not changed, whatever their number.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from headrace.algebra.query import Query, QueryScan, StreamScan, UnionAll, every_node, walk
from headrace.catalog.catalog import Catalog, CatalogQuery
from headrace.catalog.definitions import QueryDefinition
from headrace.dataclass import dataclass
from headrace.errors import StoreError, UserError, outcome_unless_known
from headrace.language.binder.sources.query_checks import check_names
from headrace.language.statements import statement as stmt
from headrace.operators.base.operator import Operator
from headrace.planner.joins.common_conditions import NONE, Conditions
from headrace.planner.joins.outer_joins import joins_changes
from headrace.planner.joins.shared_join import covering, read_under, restricted
from headrace.planner.joins.stream_joins import (
    conditions_of,
    graph_read_by,
    joins_streams,
    signature_of,
    sizes_of,
)
from headrace.runtime.epoch.pipeline import Pipeline
from headrace.runtime.home.deadline import (
    Deadline,
    DeadlinePassed,
    Lock,
    current,
    held_in_time,
    limited_by,
    require_time,
)
from headrace.runtime.plan.derived_streams import shared_join_of
from headrace.runtime.plan.epoch_planner import is_read, operator_of
from headrace.runtime.progress.plan_index import index_of
from headrace.runtime.statements import show

_Result = TypeVar("_Result")
_MOST_WITHOUT_PAIRS: Final = 8
"""Queries of one graph, each of which aggregates the streams by itself, from which on further ones aggregate shared pairs."""
_OF_QUERIES: Final = (
    stmt.CreateQuery,
    stmt.AlterQuery,
    stmt.RenameQuery,
    stmt.SetQuery,
    stmt.SetActions,
    stmt.PauseQuery,
    stmt.ResumeQuery,
)
_DEFINITIONS: Final = (
    *_OF_QUERIES,
    stmt.CreateStream,
    stmt.CreateRelation,
    stmt.SetWindow,
    stmt.SetStream,
    stmt.CreateReducer,
    stmt.DropReducer,
    stmt.Drop,
    stmt.RefreshRelation,
)


Permit: TypeAlias = Callable[[Catalog, stmt.Statement], stmt.Statement]
"""Returns the statement to run in place of one, given the catalog before it; raises for one that may not be run."""


def as_written(_: Catalog, statement: stmt.Statement) -> stmt.Statement:
    """The statement itself: it is permitted."""
    return statement


def is_definition(statement: stmt.Statement) -> bool:
    """Whether a statement changes the catalog by entries that can wait for others."""
    return isinstance(statement, _DEFINITIONS)


def changes_one_query(statement: stmt.Statement) -> bool:
    """Whether a statement changes one query and nothing else."""
    if isinstance(statement, stmt.Drop):
        return statement.kind == "query"
    return isinstance(statement, _OF_QUERIES)


def names_read(query: Query) -> set[str]:
    """The standing queries that a query reads, in lower case."""
    return {node.name.lower() for node in every_node(query) if isinstance(node, QueryScan) and node.is_named}


def refuse_unreadable(name: str, query: Query) -> None:
    """Raises `UserError` for a query that reads itself, or has a column with a reserved name.

    A new text of a query is bound while its old one still has the name.
    """
    nodes = every_node(query)
    scans = [node for node in nodes if isinstance(node, QueryScan)]
    if any(node.is_named and node.name.lower() == name.lower() for node in scans):
        raise UserError(
            f"the query '{name}' cannot read itself",
            remedy="Register the new text under another name, or read what the old one reads.",
        )
    # Inputs of a set operator were checked when it was bound: their last column may have a reserved name.
    inputs = {branch for node in nodes if isinstance(node, UnionAll) for branch in node.inputs}
    check_names(query)
    for node in scans:
        if node.query is not None and node not in inputs:
            check_names(node.query)


@dataclass(slots=True, eq=False)
class _Work:
    """What one thread wants done, until it is."""

    run: Callable[[], Any]
    deadlines: tuple[Deadline, ...] = field(default_factory=current)
    result: Any = None
    error: BaseException | None = None
    is_done: bool = False


class GroupCommit:
    """Changes of several threads, each all or nothing, in one append to the log.

    The thread that gets the lock makes the changes of all that wait for it (group commit; DeWitt et al., SIGMOD 1984, section 5).
    """

    def __init__(self, changes: CatalogChanges, lock: Lock) -> None:
        self._changes, self._lock = changes, lock
        self._arrived: deque[_Work] = deque()

    def run(self, work: Callable[[], _Result]) -> _Result:
        """The result of a function that changes the catalog, once its changes are durable. Raises what it raises."""
        mine = _Work(work)
        self._arrived.append(mine)
        try:
            with held_in_time(self._lock):
                if not mine.is_done:
                    self._run_all([self._arrived.popleft() for _ in range(len(self._arrived))])
        except DeadlinePassed:
            with suppress(ValueError):  # the thread with the lock has it, and ends it in time
                self._arrived.remove(mine)
                raise
            with limited_by(()), held_in_time(self._lock):
                pass
        if mine.error is not None:
            raise mine.error
        result: _Result = mine.result
        return result

    def _run_all(self, group: Sequence[_Work]) -> None:
        """Make the changes of a group; where the deadline of some passes before the append, those of the others."""
        waiting = group
        try:
            while waiting:
                try:
                    with limited_by([deadline for work in waiting for deadline in work.deadlines]):
                        self._append(waiting)
                    break
                except DeadlinePassed as error:
                    late = [work for work in waiting if any(each.has_passed for each in work.deadlines)]
                    _fail(late, error)
                    waiting = [work for work in waiting if work not in late]
        except Exception as error:  # noqa: BLE001 - of the append: each raises it
            _fail(group, error)
        except BaseException:
            _fail(group, StoreError("the append was interrupted", outcome="unknown"))
            raise
        finally:
            for work in group:
                work.is_done = True

    def _append(self, group: Sequence[_Work]) -> None:
        with self._changes.together():
            self._changes.find_out()
            for work in group:
                work.error = None
                try:
                    with limited_by(work.deadlines), self._changes.one_of_many():
                        work.result = work.run()
                except Exception as error:  # noqa: BLE001 - its thread raises it
                    work.error = error


def _fail(group: Sequence[_Work], error: Exception) -> None:
    for work in group:
        work.error = work.error or error


class CatalogChanges:
    """Changes of the catalog that wait for the query log. One thread at a time."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._waiting: list[Mapping[str, Any]] | None = None
        """None when each change is logged at once."""
        self._seen = self._tentative = Catalog()
        """The catalog when the last change began to wait, and the same with all that wait."""
        self._read: set[str] = set()
        """The queries that waiting ones read, in lower case."""
        self._indivisible = False
        """Whether all that wait has to be logged together."""
        self._joins: dict[str, str] = {}
        """Graphs of joins of waiting queries, each with the shared join; empty where one query has its own."""
        self._required = dict[str, Conditions]()
        """What waiting queries require of the rows of joins that they found, by their names in lower case."""
        self._founded = set[str]()
        self._without_pairs = Counter[str]()
        """By graph, how many queries have waited that aggregate a join without making its pairs."""

    @property
    def catalog(self) -> Catalog:
        """The catalog with the changes that wait."""
        catalog = self._pipeline.catalog
        if not self._waiting:
            return catalog
        if self._seen is not catalog:  # another thread has changed something meanwhile
            self._seen, self._tentative = catalog, catalog.apply_all(self._waiting)
        return self._tentative

    def find_out(self) -> None:
        """Find out, before a statement is checked, what an earlier failed or interrupted one has logged."""
        if self._pipeline.home.in_doubt:  # else do not wait for the epoch under way
            with self._pipeline.loop.lock, outcome_unless_known("absent"):
                self._pipeline.loop.engine.find_out()

    def log(self, *entries: Mapping[str, Any], query: Query | None = None) -> None:
        """Log changes together, or let them wait for their neighbours; `query` is the bound query of the last, a registration."""
        require_time()
        if self._waiting is None:
            self._clear()
            self._pipeline.log(*entries)
            return
        after = self.catalog.apply_all(entries)
        self._seen, self._tentative = self._pipeline.catalog, after
        self._waiting += entries
        if query is not None:
            self._read |= names_read(query)
            if (read := graph_read_by(query)) is not None:
                (graph, factors), definition = read, entries[-1]["query"]
                join = definition.get("join", "")
                graph_of_join = read_under(graph.signature, join)
                self._joins[graph_of_join] = join or self._joins.get(graph_of_join, "")
                if join in self._founded:
                    self._required[definition["name"].lower()] = graph.conditions(factors)

    def with_join(
        self, catalog: Catalog, definition: QueryDefinition, query: Query
    ) -> tuple[QueryDefinition, Operator]:
        """The definition of a new query with the shared join that it should read, if any, and its operator.

        Where several joins join its sources, it has the sizes that these have now: they decide the order.
        """
        of_streams = joins_streams(query) and not joins_changes(query)
        sizes = (
            sizes_of(query, lambda name: self._pipeline.home.latest().stream(name).rows) if of_streams else ()
        )
        alone = replace(definition, join="", join_sizes=sizes, join_trees=())
        operator = operator_of(catalog, CatalogQuery(alone, catalog.position))
        join = self._join_for(definition, query, operator)
        if not join:
            return alone, operator
        sharing = replace(alone, join=join)
        return sharing, operator_of(catalog, CatalogQuery(sharing, catalog.position))

    def _join_for(self, definition: QueryDefinition, query: Query, alone: Operator) -> str:
        """The shared join that a query should read; empty where it gets its own: as the first of its graph, or for good.

        `alone` is its operator then. One that makes no pairs has its own unless pairs are made for others, or there are many.
        """
        catalog = self.catalog
        streams = [catalog.stream(node.name) for node in walk(query.root) if isinstance(node, StreamScan)]
        archived = all(stream is not None and stream.archive != "none" for stream in streams)
        is_limited = definition.max_join_rows is not None or definition.join_constraints == "find"
        is_unshared = definition.from_now or is_limited or definition.spill != 0 or not definition.sharing
        signature = signature_of(query) if archived and not is_unshared else ""
        if not signature:
            return ""
        index = index_of(self._pipeline.plan)
        waiting = {graph: join or index.joins.get(graph, "") for graph, join in self._joins.items()}
        joined = covering(signature, {**index.joins, **waiting}, partial(conditions_of, query))
        if joined is not None and joined[1]:
            return joined[1]
        without_pairs = len(index.join_aggregates.get(signature, ())) + self._without_pairs[signature]
        if alone.join_signature and without_pairs < _MOST_WITHOUT_PAIRS:
            self._without_pairs[signature] += 1
            return ""
        if joined is None:
            return ""
        founded = shared_join_of(f"{catalog.position} {definition.name}", joined[0])
        self._founded.add(founded)
        return founded

    def flush(self) -> None:
        """Log the changes that wait."""
        if self._waiting:
            waiting, self._waiting = self._with_common_conditions(self._waiting), []
            self._clear()
            self._pipeline.log(*waiting)

    def _with_common_conditions(self, waiting: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Entries, in which joins that their queries found are named by what all of these require."""
        readers = defaultdict[str, dict[str, Conditions]](dict)
        for entry in waiting:
            if (join := entry.get("query", {}).get("join", "")) in self._founded:
                name = entry["query"]["name"].lower()
                readers[join][name] = self._required.get(name, NONE)
        if not readers:
            return waiting
        known, graphs = (
            index_of(self._pipeline.plan).joins,
            {join: graph for graph, join in self._joins.items()},
        )
        names = {
            join: restricted(join, list(required.values()), graphs[join], known)
            for join, required in readers.items()
        }
        return [
            {**entry, "query": {**entry["query"], "join": names[join]}}
            if (join := entry.get("query", {}).get("join", "")) in names
            else entry
            for entry in waiting
        ]

    def _clear(self) -> None:
        """No queries wait, so there is nothing that they read."""
        self._read.clear()
        self._joins.clear()
        self._required.clear()
        self._founded.clear()
        self._without_pairs.clear()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Changes wait for each other until the end of the block, also where it ends with an error."""
        self._waiting = []
        try:
            yield
        finally:
            try:
                self.flush()
            finally:
                self._waiting = None

    @contextmanager
    def one_of_many(self) -> Iterator[None]:
        """A part of `together`: where the block ends with an error none of its changes is made, and those before it are."""
        assert self._waiting is not None
        count, before = len(self._waiting), (self._seen, self._tentative)
        read, joins = set(self._read), dict(self._joins)
        required, founded, without_pairs = (
            dict(self._required),
            set(self._founded),
            self._without_pairs.copy(),
        )
        self._indivisible = True
        try:
            yield
        except BaseException:
            del self._waiting[count:]
            self._read, self._joins, (self._seen, self._tentative) = read, joins, before
            self._required, self._founded, self._without_pairs = required, founded, without_pairs
            raise
        finally:
            self._indivisible = False

    @contextmanager
    def tentatively(self) -> Iterator[None]:
        """Changes are visible until the end of the block, and none is made."""
        self._waiting, self._indivisible = [], True
        try:
            yield
        finally:
            self._waiting, self._indivisible = None, False
            self._clear()

    def readers(self, name: str) -> list[str]:
        """The queries that read a query. Queries are searched one by one only when there are some."""
        standing = self.catalog.require_query(name)
        if name.lower() in self._read or (self._waiting and self._is_read(standing.operator_id)):
            # Among those that wait are readers, or readers are dropped.
            if self._indivisible:
                return show.users_of(self.catalog, "query", name)
            self.flush()
        if not self._is_read(standing.operator_id):
            return []
        return show.users_of(self.catalog, "query", name)

    def _is_read(self, operator_id: str) -> bool:
        return is_read(self._pipeline.plan, operator_id)
