"""The execution of a script by `headrace run`, in an open home: its statements, then either all present input and the
answers once, or its sources followed with new rows as they are committed; at the end warnings about lost rows. Or, where another process runs the home, by its hub.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.cli.screen import Screen
from headrace.cli.signals import Interrupts, let_arrow_finish
from headrace.connectors.sources.listing import not_there_yet
from headrace.errors import HeadraceError, UserError
from headrace.language.statements import statement as stmt
from headrace.operators.base.query_failures import of_query
from headrace.runtime.delivery.output_files import Exporter, emitted_rows
from headrace.runtime.hub.hub import Hub
from headrace.runtime.introspection.loss_report import closing_loss_report, loss_report
from headrace.runtime.introspection.status import failed, unread
from headrace.runtime.invoke.answer_caveats import AnswerCaveats
from headrace.runtime.results import result_log
from headrace.runtime.results.result_log import visible
from headrace.runtime.statements.outcome import Outcome

if TYPE_CHECKING:
    from headrace.cli.run_command import RunOptions

_LOOK_SECONDS: Final = 0.2
_TABLES: Final = (
    stmt.Ask,
    stmt.Invoke,
    stmt.Show,
    stmt.Describe,
    stmt.ExplainQuery,
    stmt.ExplainAdaptive,
    stmt.ExplainAll,
    stmt.ExplainSelect,
)


class ScriptRun:
    """One run of one script."""

    def __init__(
        self, options: RunOptions, hub: Hub, screen: Screen, stop: Interrupts, text: str, *, persistent: bool
    ) -> None:
        let_arrow_finish()
        self._options, self._hub, self._screen, self._stop, self._text = options, hub, screen, stop, text
        self._persistent = persistent
        style = options.style or "csv"
        self._exporter = Exporter(hub, options.output, style) if options.output is not None else None
        self._before = hub.home.latest()
        self._caveats: list[str] = []
        self._warned: set[str] = set()
        self._ended: dict[str, HeadraceError] = {}
        """Streams whose source Spark has ended."""

    def run(self, statements: tuple[stmt.Statement, ...]) -> int:
        """Carry out the statements, and answer once or follow the sources; the exit code."""
        queries = self._answering(statements) if self._exporter is None else 0
        self._screen.several = queries + sum(isinstance(statement, _TABLES) for statement in statements) > 1
        done = self._carry_out(statements)
        if self._options.once:
            done = done and self._hub.catch_up(self._stop.proceed, last=not self._persistent)
            if done:
                self._answer()
        elif done:
            self._follow()
        else:
            self._screen.line.warning("Stopped before the first epoch; the next run continues.")
        self._print_loss_report()
        if self._options.once and not done:
            self._screen.line.warning("Stopped before all input was read; no answers are shown.")
            return self._stop.exit_code
        codes = [error.exit_code for error in (*unread(self._hub).values(), *self._ended.values())]
        return max([*codes, *(HeadraceError.exit_code for _ in failed(self._hub))], default=0)

    def _answering(self, statements: tuple[stmt.Statement, ...]) -> int:
        """How many queries will answer: those of the home and those of the script."""
        created = {item.definition.name.lower() for item in statements if isinstance(item, stmt.CreateQuery)}
        return len(created | {item.definition.name.lower() for item in self._hub.catalog.queries.values()})

    def _carry_out(self, statements: tuple[stmt.Statement, ...]) -> bool:
        done = 0
        for outcome in self._hub.execute_each(statements, self._text, self._may_continue):
            self._show(statements[done], outcome)
            done += 1
        return done == len(statements) and not self._stop.stop

    def _may_continue(self, statement: stmt.Statement) -> bool:
        """Before an INVOKE or a question, read all input that is there."""
        return not isinstance(statement, stmt.Invoke | stmt.Ask) or self._hub.catch_up(self._stop.proceed)

    def _show(self, statement: stmt.Statement, outcome: Outcome) -> None:
        if outcome.warning is not None:
            self._warned.add(outcome.warning)
        self._screen.outcome(statement, outcome)

    def _answer(self) -> None:
        closing = self._hub.finish(seal=self._options.seal)
        if self._exporter is not None:
            self._caveats += self._exporter.finish(closing)
            self._screen.line.message(f"The answers are in {self._exporter.folder}")
            return
        manifest = self._hub.home.latest()
        for query in self._hub.catalog.queries.values():
            name = query.definition.name
            operator, meaning = self._hub.operator_and_query(name)
            try:
                table = emitted_rows(self._hub.home, manifest, operator, meaning, closing.get(name))
                self._screen.answer(name, table)
            except Exception as failure:  # noqa: BLE001 - of any kind: it is this answer's
                self._hub.closing_failures[name] = of_query(failure)
                continue
            self._caveats += AnswerCaveats.of(table).sentences(name)

    def _follow(self) -> None:
        hub, stop = self._hub, self._stop
        self._screen.line.message("Following the sources; Ctrl-C ends, the next run resumes.")
        printer = _ResultPrinter(hub, self._screen) if self._exporter is None else None
        hub.start()
        try:
            while not stop.wait(_LOOK_SECONDS) and hub.loop.failure is None:
                self._show_news(printer)
        finally:
            hub.stop()
        self._show_news(printer)
        self._screen.line.message(f"Stopped after epoch {hub.home.latest().epoch}; the home is {hub.path}")

    def _show_news(self, printer: _ResultPrinter | None) -> None:
        self._print_unread()
        for name, error in self._hub.frames.ended().items():
            if name not in self._ended:
                self._ended[name] = error
                self._screen.line.warning(str(error))
        if self._exporter is not None:
            self._exporter.refresh()
        elif printer is not None:
            printer.show()

    def _print_failed(self) -> None:
        for name, reason in failed(self._hub).items():
            message = f"{name} failed, and the others continue: {reason}"
            if message not in self._warned:
                self._warned.add(message)
                self._screen.line.warning(message)

    def _print_unread(self) -> None:
        self._print_failed()
        for name, error in unread(self._hub).items():
            message = (
                f"{name}: its archived rows cannot be read, so it waits and the others continue. {error}"
            )
            if message not in self._warned:
                self._warned.add(message)
                self._screen.line.warning(message)

    def _print_loss_report(self) -> None:
        self._print_unread()
        waiting = [not_there_yet(stream) for stream in self._hub.catalog.streams.values()]
        for sentence in waiting:
            if sentence is not None and sentence not in self._warned:
                self._screen.line.warning(sentence)
        for sentence in self._hub.source_warnings().values():
            self._screen.line.warning(sentence)
        for sentence in loss_report(
            self._hub.home, self._before, self._hub.home.latest(), persistent=self._persistent
        ):
            self._screen.line.warning(sentence)
        for sentence in (*closing_loss_report(self._hub.closing_rejects), *self._caveats):
            self._screen.line.warning(sentence)


def run_beside(
    options: RunOptions,
    home: Path,
    screen: Screen,
    stop: Interrupts,
    text: str,
    statements: Sequence[stmt.Statement],
) -> int:
    """Send a script to the hub that runs on the home in another process; with `once`, wait until it has read all input; the exit code.

    Raises `UserError` for mistakes in the script, and for options that are the other process's.
    """
    from headrace.remote.remote_hub import connect_hub, in_place  # noqa: PLC0415 - most runs have a home of their own

    with connect_hub(home) as hub:
        _require_possible(options, home, hub.status()["engine"]["engine"])
        screen.several = sum(isinstance(statement, _TABLES) for statement in statements) > 1
        zone = "UTC"
        try:
            stop.when_requested(_interrupt)  # a request may wait for long
            for part in _parts(statements):
                if isinstance(part[0], stmt.SetTimeZone):
                    zone = part[0].zone
                if isinstance(part[0], stmt.Invoke | stmt.Ask):
                    hub.catch_up()
                sent = in_place(text, part[0].span.to(part[-1].span))
                for statement, outcome in zip(part, hub.execute(sent, zone=zone), strict=True):
                    screen.outcome(statement, outcome)
            if options.once:
                hub.catch_up()
        except KeyboardInterrupt:
            screen.line.warning(f"Stopped; the hub on {home} continues.")
            return stop.exit_code
    done = "has read all input" if options.once else "follows the sources"
    screen.line.message(f"The hub on {home} {done}; headrace shell and headrace fetch show its answers.")
    return 0


def _require_possible(options: RunOptions, home: Path, engine: str) -> None:
    """Raise `UserError` for options that only the process that runs the home could honour."""
    given = {
        "--output": options.output is not None,
        "--end-of-stream": options.seal,
        "--memory": options.memory is not None,
        "--cores": options.cores is not None,
        f"--engine {options.engine}": options.engine not in (None, engine),
    }
    refused = [name for name, is_given in given.items() if is_given]
    if refused:
        raise UserError(
            f"another process runs the home {home} (engine {engine}), so this one cannot honour {' and '.join(refused)}",
            remedy="Leave it out, and the script is sent to that process; or stop that process first.",
        )


def _parts(statements: Sequence[stmt.Statement]) -> Iterator[list[stmt.Statement]]:
    """Statements that are sent together: an answer waits for its input, and a time zone is that of those after it."""
    part: list[stmt.Statement] = []
    for statement in statements:
        if part and isinstance(statement, stmt.Invoke | stmt.Ask | stmt.SetTimeZone):
            yield part
            part = []
        part.append(statement)
    if part:
        yield part


def _interrupt() -> None:
    raise KeyboardInterrupt


class _ResultPrinter:
    """Shows result rows as epochs commit them, from now on."""

    def __init__(self, hub: Hub, screen: Screen) -> None:
        self._hub, self._screen = hub, screen
        self._seen = hub.home.list_of(hub.home.latest(), "results").length

    def show(self) -> None:
        home = self._hub.home
        manifest = home.latest()
        start, self._seen = self._seen, home.list_of(manifest, "results").length
        if start == self._seen:
            return
        for query in self._hub.catalog.queries.values():
            operator, meaning = self._hub.operator_and_query(query.definition.name)
            try:
                for part in result_log.epochs_of(home, manifest, operator.id, start):
                    rows = result_log.ordered(part.table, operator.sort, meaning.schema.names)
                    self._screen.rows(query.definition.name, part.epoch, visible(rows, meaning, changes=True))
            except Exception as failure:  # noqa: BLE001 - of any kind: it is this answer's
                self._hub.closing_failures[query.definition.name] = of_query(failure)
