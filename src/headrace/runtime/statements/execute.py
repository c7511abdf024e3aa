"""Execution of statements: the change or the answer of each.

Definitions are checked, and queries bound and lowered, before anything is logged: what cannot run is refused here, with
the reason. A CREATE equal to what is there does nothing, so a script can be run again on the home it made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from headrace.catalog.catalog import Catalog, registration
from headrace.catalog.definition_json import settings_to_json, to_json
from headrace.catalog.definitions import QueryDefinition, RelationDefinition, StreamDefinition
from headrace.connectors.records.options import settle
from headrace.connectors.sources.source_reader import read_all
from headrace.errors import Listing, Span, UserError, did_you_mean
from headrace.language.statements import statement as stmt
from headrace.language.statements.options import known_zone
from headrace.language.statements.parse_script import parse_script
from headrace.language.statements.stream_keywords import stream_from_keywords
from headrace.runtime.delivery.cursor import carry_over
from headrace.runtime.delivery.open_actions import OpenActions
from headrace.runtime.epoch.pipeline import Pipeline
from headrace.runtime.home.deadline import held_in_time, one_by_one
from headrace.runtime.home.file_names import require_name
from headrace.runtime.home.gc_control import MANY, registering
from headrace.runtime.home.run_cache import save_relation
from headrace.runtime.invoke.subwindow import answer_within
from headrace.runtime.plan.bound_queries import CatalogNames, bind_parsed, bind_text, streams_made_by
from headrace.runtime.plan.update_guards import refuse_if_joined_by_changelog
from headrace.runtime.statements import bulk_changes
from headrace.runtime.statements.action_checks import ActionRules, refuse_if_written, renaming
from headrace.runtime.statements.change_batch import (
    CatalogChanges,
    GroupCommit,
    Permit,
    changes_one_query,
    is_definition,
    refuse_unreadable,
)
from headrace.runtime.statements.definition_diff import differences, refuse_if_read, require_free
from headrace.runtime.statements.outcome import Outcome, moved
from headrace.runtime.statements.query_choice import chosen
from headrace.runtime.statements.show import show, users_of
from headrace.runtime.statements.streams.stream_statements import StreamStatements
from headrace.runtime.statements.synopsis_budget import affordable
from headrace.runtime.statements.window_limits import require_few_windows, require_limited_join
from headrace.schema import Schema
from headrace.time import render_instant

_MAKES_STATE: Final = ("materialize", "zone", "sharing", "max_join_rows", "join_constraints", "spill")
"""Settings that define how an answer is computed and stored; the others do not change state."""
_LONG_SCRIPT: Final = 1 << 16
"""Characters."""


class Statements:
    """Executes statements. `check_source` tries what only Spark can open, before a stream of it is made."""

    def __init__(
        self,
        pipeline: Pipeline,
        check_source: Callable[[StreamDefinition], None],
        report_sinks: Callable[[], list[dict[str, Any]]],
        actions: OpenActions,
    ) -> None:
        self._pipeline, self._report_sinks = pipeline, report_sinks
        self._report_actions = actions.report
        self._action_rules = ActionRules(pipeline, actions.receivers)
        self._one_script = threading.RLock()
        """One script at a time: changes of another thread do not wait for this one's."""
        self._changes = CatalogChanges(pipeline)
        self._of_streams = StreamStatements(self._changes, check_source)
        self._group = GroupCommit(self._changes, self._one_script)
        self._zone = "UTC"
        self._actions: dict[type, Callable[[Any], Outcome]] = {
            stmt.CreateStream: self._of_streams.create,
            stmt.CreateRelation: self._create_relation,
            stmt.CreateQuery: self._create_query,
            stmt.AlterQuery: self._alter,
            stmt.RenameQuery: self._rename,
            stmt.SetQuery: self._set_query,
            stmt.SetActions: self._set_actions,
            stmt.SetWindow: self._set_window,
            stmt.SetStream: self._of_streams.set,
            stmt.CreateReducer: self._of_streams.create_reducer,
            stmt.DropReducer: self._of_streams.drop_reducer,
            stmt.Drop: self._drop,
            stmt.PauseQuery: self._pause,
            stmt.ResumeQuery: self._resume,
            stmt.AllQueries: self._all_queries,
            stmt.RefreshRelation: self._refresh,
            stmt.Punctuate: self._punctuate,
            stmt.SetTimeZone: self._set_zone,
            stmt.Invoke: self._invoke,
        }

    def execute(self, script: str) -> list[Outcome]:
        """All statements of a script, in order. A parse error anywhere stops it before the first takes effect."""
        with registering(len(script) >= _LONG_SCRIPT):
            return list(self.execute_each(parse_script(script, self._zone), script))

    @contextmanager
    def _in_zone(self, zone: str) -> Iterator[None]:
        """Literals of a block in a zone of its own."""
        with self._one_script:
            before, self._zone = self._zone, zone
            try:
                yield
            finally:
                self._zone = before

    def execute_or_refuse(self, script: str, zone: str, permit: Permit) -> list[Outcome]:
        """As `execute`, but a mistake in a definition leaves none of the script's definitions.

        Definitions alone are one entry of the log. Where other statements are between them, all are checked first. `permit` gets
        each statement with the catalog before it.
        """
        with registering(len(script) >= _LONG_SCRIPT):
            statements = parse_script(script, zone)
            if all(map(is_definition, statements)):
                with self._rolled_back(statements):
                    return self._group.run(lambda: self._permitted(statements, script, permit)[1])
            with held_in_time(self._one_script), self._in_zone(known_zone(zone)):
                with self._rolled_back(statements), self._changes.tentatively():
                    permitted, _ = self._permitted(statements, script, permit)
                in_order, before = one_by_one(permitted)
                return list(self.execute_each(in_order, script, before))

    @contextmanager
    def _rolled_back(self, statements: Sequence[stmt.Statement]) -> Iterator[None]:
        """A block whose definitions are not made where it ends with an error: its remedy does not list them."""
        try:
            yield
        except UserError as error:
            if isinstance(error.remedy, Listing):
                made = {
                    created.name.lower() for item in statements if (created := _created(item)) is not None
                }
                catalog = self._pipeline.catalog
                gone = {name for name in made if catalog.kind_of(name) is None}
                error.remedy = error.remedy.without(gone)
            raise

    def _permitted(
        self, statements: Sequence[stmt.Statement], script: str, permit: Permit
    ) -> tuple[list[stmt.Statement], list[Outcome]]:
        """The statements to run, and the outcomes of the definitions among them, which are run."""
        permitted, outcomes = [], []
        for statement in statements:
            permitted.append(permit(self._catalog, statement))
            if is_definition(statement):
                outcomes.append(self.carry_out(permitted[-1], script))
        return permitted, outcomes

    def execute_each(
        self,
        statements: Iterable[stmt.Statement],
        script: str,
        before: Callable[[stmt.Statement], bool] = lambda _: True,
    ) -> Iterator[Outcome]:
        """Statements in order, one outcome at a time; changes of queries that follow one another are logged and planned together.

        Ends early where `before` a statement that changes no query is False.

        The outcome of a change of a query follows once it is durable: with the last of those in a row.
        """
        held: list[Outcome] = []
        with self._one_script, self._changes.together():
            try:
                for statement in statements:
                    if changes_one_query(statement):
                        held.append(self.carry_out(statement, script))
                        continue
                    yield from self._registered(held)
                    if not before(statement):
                        return
                    yield self.carry_out(statement, script)
            except UserError:
                yield from self._registered(held)
                raise
            yield from self._registered(held)

    def _registered(self, held: list[Outcome]) -> list[Outcome]:
        """Log the changes that wait, and return and clear their outcomes; neither when logging fails."""
        outcomes, held[:] = held[:], []
        self._changes.flush()
        return outcomes

    def create_queries(self, selects: Mapping[str, str], labels: QueryDefinition) -> None:
        """Register queries by name from their texts, all of them or none; `labels` has everything else.

        Raises `UserError` that, among several, names the query of the first mistake.
        """
        if "" in selects:
            raise UserError("a name cannot be empty")
        with registering(len(selects) >= MANY):
            self._group.run(lambda: self._create_queries(selects, labels))

    def _create_queries(self, selects: Mapping[str, str], labels: QueryDefinition) -> None:
        for name, select in selects.items():
            try:
                _require_texts(name, select)
                text = select.strip().rstrip(";")
                definition = replace(labels, name=name, text=text, zone=self._zone)
                self._put_query(definition, replacing=False)
            except UserError as error:
                if len(selects) > 1:
                    error.message = f"{error.message} (in the query '{name}')"
                raise

    def carry_out(self, statement: stmt.Statement, script: str) -> Outcome:
        """One statement.

        Raises `UserError`, placed in the script.
        """
        action = self._actions.get(type(statement))
        try:
            if action is None:
                return show(
                    self._pipeline.home,
                    statement,
                    self._report_sinks,
                    self._pipeline.source_warnings,
                    self._report_actions,
                )
            with self._one_script:
                self._changes.find_out()
                if isinstance(statement, stmt.CreateQuery):
                    query = statement.definition
                    bind_parsed(self._catalog, query.text, query.zone, statement.select, script)
                elif isinstance(statement, stmt.AlterQuery):
                    bind_parsed(self._catalog, statement.query, statement.zone, statement.select, script)
                return action(statement)
        except UserError as error:
            if error.span is None:
                error.span = statement.span
            raise error.within(script) from None

    @property
    def _catalog(self) -> Catalog:
        """The catalog with the changes that wait."""
        return self._changes.catalog

    def create_stream(self, name: str, schema: Schema, using: str, keywords: Mapping[str, Any]) -> Outcome:
        """CREATE STREAM by keywords of a Python call, see `StreamOptions`; its rows come from the program.

        Raises `UserError` as the statement does.
        """
        with self._one_script:
            self._changes.find_out()
            definition = stream_from_keywords(name, schema, using, keywords, self._zone)
            return self._of_streams.put(definition, replacing=False, is_frame=True)

    def _create_relation(self, statement: stmt.CreateRelation) -> Outcome:
        definition = settle(statement.definition, Path.cwd())
        assert isinstance(definition, RelationDefinition)
        stored = self._catalog.relation(definition.name)
        if stored is not None and not differences(self._catalog, stored.definition, definition):
            return Outcome("create", definition.name, f"relation {definition.name} is there already")
        require_free(
            self._catalog,
            definition.name,
            stored.definition if stored else None,
            definition,
            statement.replace,
        )
        require_name("relation", definition.name)
        if stored is not None and stored.definition.schema != definition.schema:
            refuse_if_read(self._catalog, "relation", definition.name)
        return self._put_relation(definition, 0 if stored is None else stored.version + 1, "created")

    def _put_relation(self, definition: RelationDefinition, version: int, verb: str) -> Outcome:
        table, rejects = read_all(definition, self._pipeline.loop.engine.clock())
        if rejects.num_rows:
            raise UserError(
                f"{rejects.num_rows} of its rows cannot be read as {definition.name}'s columns; the first: "
                f"{rejects.column('reason')[0].as_py()}",
                remedy="Correct the file, or the relation's column types.",
            )
        plan, store = self._pipeline.plan, self._pipeline.home.store
        refuse_if_joined_by_changelog(self._catalog, plan, store, definition.name, table)
        file = save_relation(store, definition.name, version, table)
        self._changes.log({"do": "put_relation", "relation": to_json(definition), "file": file})
        return Outcome(
            "create", definition.name, f"relation {definition.name} {verb}, {table.num_rows:,} rows"
        )

    def _refresh(self, statement: stmt.RefreshRelation) -> Outcome:
        stored = self._catalog.require_relation(statement.name)
        return self._put_relation(stored.definition, stored.version + 1, "refreshed")

    def _create_query(self, statement: stmt.CreateQuery) -> Outcome:
        try:
            return self._put_query(statement.definition, replacing=statement.replace, places=statement.places)
        except UserError as error:
            raise moved(error, statement.select.span.start) from None

    def _put_query(
        self, definition: QueryDefinition, *, replacing: bool, places: Sequence[Span] = ()
    ) -> Outcome:
        definition = self._affordable(definition)
        existing = self._catalog.query(definition.name)
        definition = self._action_rules.identified(definition, existing.definition if existing else None)
        if existing is not None and not differences(self._catalog, existing.definition, definition):
            return Outcome("create", definition.name, f"query {definition.name} is there already")
        require_free(
            self._catalog,
            definition.name,
            existing.definition if existing is not None else None,
            definition,
            replacing,
        )
        require_name("query", definition.name)
        if existing is not None:
            self._without_readers(definition.name)
        self._put(definition, places=places)
        return Outcome("create", definition.name, f"query {definition.name} registered")

    def _affordable(self, definition: QueryDefinition) -> QueryDefinition:
        """The definition with the best accuracy that fits the budget, where all synopses share one."""
        return affordable(self._catalog, definition, self._pipeline.synopsis_bytes)

    def _put(
        self,
        definition: QueryDefinition,
        existing: QueryDefinition | None = None,
        places: Sequence[Span] = (),
    ) -> None:
        """Bind and lower, since a query that cannot run is refused now; then log it, unless it equals `existing`."""
        query = bind_text(self._catalog, definition.text, definition.zone)
        catalog = self._catalog.apply_all(streams := streams_made_by(self._catalog, query))
        refuse_unreadable(definition.name, query)
        require_few_windows(definition, query)
        require_limited_join(definition, query)
        chosen, operator = self._changes.with_join(catalog, definition, query)
        self._action_rules.require(catalog, definition, query, operator, places)
        if definition != existing:
            self._changes.log(*streams, registration(chosen), query=query)

    def _alter(self, statement: stmt.AlterQuery) -> Outcome:
        existing = self._catalog.require_query(statement.name)
        self._without_readers(existing.definition.name)
        try:
            new = replace(
                existing.definition.healed(), text=statement.query, zone=statement.zone, continues=False
            )
            self._put(definition := self._affordable(new), existing.definition)
        except UserError as error:
            raise moved(error, statement.select.span.start) from None
        return Outcome("alter", definition.name, f"query {definition.name} altered")

    def _set_window(self, statement: stmt.SetWindow) -> Outcome:
        """Emitted windows stay as they are; later ones are of the new kind, over the stored rows."""
        from headrace.runtime.statements.alter_window import with_window  # noqa: PLC0415 - a rare statement

        existing = self._catalog.require_query(statement.name)
        self._without_readers(existing.definition.name)
        definition = with_window(self._catalog, existing, statement)
        if definition != existing.definition:
            require_few_windows(definition, bind_text(self._catalog, definition.text, definition.zone))
            self._changes.log(registration(definition, existing))
        return Outcome("alter", definition.name, f"query {definition.name} has the window {statement.window}")

    def _set_actions(self, statement: stmt.SetActions) -> Outcome:
        """In force at once: an action that the query has already continues from its position."""
        entries, outcome = self._action_rules.changed(self._catalog, statement)
        if entries:
            self._changes.log(*entries)
        return outcome

    def _without_readers(self, name: str) -> None:
        """Require that no query reads this one: their windows are computed from its results."""
        readers = self._changes.readers(name)
        if readers:
            raise UserError(
                f"the query '{name}' is read by {', '.join(readers)}, so it cannot change",
                remedy="Drop these queries first, or register the new text under another name.",
            )

    def _rename(self, statement: stmt.RenameQuery) -> Outcome:
        existing = self._catalog.require_query(statement.name)
        kind = self._catalog.kind_of(statement.new_name)
        if kind is not None and statement.new_name.lower() != statement.name.lower():
            raise UserError(
                f"there is a {kind} named '{statement.new_name}' already", remedy="Choose another name."
            )
        require_name("query", statement.new_name)
        self._without_readers(existing.definition.name)
        names = [query.definition.name for query in self._catalog.queries.values()]
        carry_over(self._pipeline.home.store, existing.definition.name, statement.new_name, names)
        self._changes.log(*renaming(existing.definition, statement.new_name))
        return Outcome(
            "alter", statement.new_name, f"query {existing.definition.name} is now {statement.new_name}"
        )

    def _set_query(self, statement: stmt.SetQuery) -> Outcome:
        """Expired results do not come back; none expires before the next epoch."""
        existing, settings = self._catalog.require_query(statement.name).definition, statement.settings
        name = existing.name
        changed = replace(existing, **settings)
        if any(getattr(changed, setting) != getattr(existing, setting) for setting in _MAKES_STATE):
            # Another way of storing an answer is another state, backfilled from the archive as for a new query.
            self._without_readers(name)
            self._put(changed)
        elif changed != existing:
            self._changes.log({"do": "set", "name": name, "settings": settings_to_json(settings)})
        return Outcome("alter", name, f"query {name} {bulk_changes.settings_report(settings)}")

    def _drop(self, statement: stmt.Drop) -> Outcome:
        if self._catalog.kind_of(statement.name) != statement.kind:
            if statement.if_exists:
                return Outcome("drop", statement.name, f"there was no {statement.kind} {statement.name}")
            names = [
                n for n in CatalogNames(self._catalog).known() if self._catalog.kind_of(n) == statement.kind
            ]
            raise UserError(
                f"there is no {statement.kind} '{statement.name}'", remedy=did_you_mean(statement.name, names)
            )
        self.drop(statement.kind, statement.name)
        return Outcome("drop", statement.name, f"{statement.kind} {statement.name} dropped")

    def drop(self, kind: stmt.Kind, name: str) -> None:
        """Remove a stream, relation or query. Raises `UserError` while queries read it."""
        with self._one_script:
            self._changes.find_out()
            users = self._changes.readers(name) if kind == "query" else users_of(self._catalog, kind, name)
            if users:
                raise UserError(
                    f"the {kind} '{name}' is read by {', '.join(users)}", remedy="Drop these queries first."
                )
            if kind == "stream":
                refuse_if_written(self._catalog, name)
            self._changes.log({"do": "drop", "kind": kind, "name": name})

    def _pause(self, statement: stmt.PauseQuery) -> Outcome:
        name = self._set_paused(statement.name, paused=True, reason=statement.reason)
        return Outcome("pause", name, f"query {name} paused")

    def _resume(self, statement: stmt.ResumeQuery) -> Outcome:
        name = self._set_paused(statement.name, paused=False)
        return Outcome("resume", name, f"query {name} resumed, it catches up first")

    def _set_paused(self, name: str, *, paused: bool, reason: str = "") -> str:
        query = self._catalog.require_query(name)
        if entries := bulk_changes.entries(self._catalog, "pause" if paused else "resume", [query], reason):
            self._changes.log(*entries)
        return query.definition.name

    def _all_queries(self, statement: stmt.AllQueries) -> Outcome:
        """Change all selected queries at once: a crash leaves all of them changed, or none."""
        queries = [query for query, _ in chosen(self._pipeline.home, statement.selection)]
        entries = bulk_changes.entries(self._catalog, statement.verb, queries)
        if entries:
            self._pipeline.log(*entries)
        return Outcome(statement.verb, None, bulk_changes.done(statement.verb, entries))

    def _punctuate(self, statement: stmt.Punctuate) -> Outcome:
        self._pipeline.punctuate(statement.name, statement.at, statement.where, statement.zone)
        bound = (
            f"where {statement.where}" if statement.where else f"below {render_instant(statement.at or 0)}"
        )
        return Outcome("punctuate", statement.name, f"stream {statement.name}: no row {bound} follows")

    def _set_zone(self, statement: stmt.SetTimeZone) -> Outcome:
        """For later statements; existing queries keep the zone they were made with."""
        self._zone = statement.zone
        return Outcome("set", None, f"time zone {statement.zone}")

    def _invoke(self, statement: stmt.Invoke) -> Outcome:
        home = self._pipeline.home
        operator, query = self._pipeline.operator_and_query(statement.name)
        return Outcome.answer(statement.name, answer_within(home, operator, query, statement.last))


def _created(
    statement: stmt.Statement,
) -> StreamDefinition | RelationDefinition | QueryDefinition | None:
    """What a CREATE statement defines."""
    match statement:
        case stmt.CreateStream() | stmt.CreateRelation() | stmt.CreateQuery():
            return statement.definition
    return None


def _require_texts(name: object, select: object) -> None:
    if not isinstance(name, str) or not isinstance(select, str):
        raise UserError(
            f"a query is a name and a SELECT, both texts, not {name!r} and {select!r}",
            remedy="hub.register('SELECT …', name='busy').",
        )
