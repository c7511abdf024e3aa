"""`headrace shell`: statements typed at a prompt, or given with -e.

Statements that only read (SHOW, DESCRIBE, EXPLAIN, INVOKE) need no lock and no Spark, so they run at once, also while another
process writes the home. Other statements are sent to the process that runs the home; where there is none, the first one makes
this process the writer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import field
from pathlib import Path
from typing import Final

from headrace.cli.completion import prepare_readline
from headrace.cli.screen import Screen
from headrace.cli.signals import Interrupts
from headrace.dataclass import dataclass
from headrace.errors import HeadraceError, UserError
from headrace.language.statements import statement as stmt
from headrace.language.statements.parse_script import parse_script
from headrace.language.syntax.lexer import tokens
from headrace.remote.remote_hub import connect_hub, in_place
from headrace.remote.sockets import is_listening
from headrace.runtime.hub.hub import Hub
from headrace.runtime.invoke.home_reader import Reader
from headrace.runtime.statements.outcome import Outcome
from headrace.runtime.statements.show import show
from headrace.server.open_or_connect import open_hub

_READ_ONLY: Final = (
    stmt.Ask,
    stmt.Show,
    stmt.Describe,
    stmt.ExplainQuery,
    stmt.ExplainAdaptive,
    stmt.ExplainAll,
    stmt.ExplainSelect,
)
_HELP: Final = """Statements end with ';' and may take several lines.
  SHOW QUERIES; SHOW STREAMS; SHOW RELATIONS;   what there is
  DESCRIBE name;   EXPLAIN QUERY name;          its columns; how it is answered
  INVOKE name;                                  its current answer; [RANGE 5 MINUTES] after the name: of a part of its window
  CREATE QUERY name AS SELECT ...;              a new standing query, over all archived rows first
  \\q or Ctrl-D ends, Ctrl-C drops what is typed so far."""


@dataclass(slots=True)
class Session:
    """Statements against one home; becomes its writer when it must."""

    home: Path
    screen: Screen
    cores: int | None = None
    local: bool = False
    _stack: ExitStack = field(default_factory=ExitStack)
    _hub: Hub | None = None
    _zone: str = "UTC"
    _needs_epochs: bool = False
    """Whether an INVOKE has been typed, which waits until all input is read: changes of the catalog alone need no Spark."""

    def run(self, text: str) -> None:
        """Execute statements and show their outcomes.

        Raises `UserError` with line and column.
        """
        statements = parse_script(text, self._zone)
        self._needs_epochs = self._needs_epochs or any(isinstance(item, stmt.Invoke) for item in statements)
        for statement in statements:
            try:
                outcome = self._carry_out(statement, text)
            except UserError as error:
                if error.span is None:
                    error.span = statement.span
                raise error.within(text) from None
            self.screen.outcome(statement, outcome)

    def names(self) -> list[str]:
        """Names of all streams, relations and queries, for completion."""
        with suppress(HeadraceError):
            catalog = self._hub.catalog if self._hub is not None else Reader.at(self.home).catalog
            names = [stream.name for stream in catalog.streams.values()]
            names += [relation.definition.name for relation in catalog.relations.values()]
            return names + [query.definition.name for query in catalog.queries.values()]
        return []

    def close(self) -> None:
        """Release the home."""
        self._hub = None
        self._stack.close()

    def _carry_out(self, statement: stmt.Statement, text: str) -> Outcome:
        if self._hub is None and isinstance(statement, stmt.Invoke):
            return Outcome.answer(statement.name, Reader.at(self.home).invoke(statement.name, statement.last))
        if self._hub is None and isinstance(statement, _READ_ONLY):
            return show(Reader.at(self.home).home, statement)
        if isinstance(statement, stmt.SetTimeZone):
            self._zone = statement.zone
            return Outcome("set", None, f"time zone {statement.zone}")
        if self._hub is None and is_listening(self.home):
            return self._sent(statement, text)
        hub = self._writer()
        with Interrupts() as stop:
            stop.when_requested(hub.give_up_start)
            if isinstance(statement, stmt.Invoke):
                hub.catch_up(stop.proceed)
            return hub.carry_out(statement, text)

    def _sent(self, statement: stmt.Statement, text: str) -> Outcome:
        """The outcome of a statement that is executed by the process that runs the home."""
        with connect_hub(self.home) as remote:
            (outcome,) = remote.execute(in_place(text, statement.span), zone=self._zone)
        return outcome

    def _writer(self) -> Hub:
        if self._hub is None:
            hub = open_hub(
                self.home, cores=self.cores, local=self.local, brief=True, start=self._needs_epochs
            )
            self._hub = self._stack.enter_context(hub)
            hub.on_epoch(self.screen.line.update)
            hub.on_failure(self.screen.line.failed)
        return self._hub


def run_texts(session: Session, texts: Sequence[str]) -> int:
    """`-e`: the statements of each text; the exit code.

    Raises `UserError`; of a mistake in the syntax of any text before the first takes effect.
    """
    try:
        for text in texts:
            parse_script(text)
        for text in texts:
            session.run(text)
    finally:
        session.close()
    return 0


def run_prompt(session: Session, read: Callable[[str], str] = input) -> int:
    r"""Read statements until \q or the end of input; errors are shown and do not end it.

    The exit code: that of the first error where the input is no terminal.
    """
    code = 0
    interactive = sys.stdin.isatty()
    if interactive:
        prepare_readline(session.names)
        session.screen.line.message(
            f"Headrace on {session.home}. Statements end with ';'; \\h helps, \\q ends."
        )
    try:
        for text in _typed(read, interactive=interactive):
            if text in ("\\h", "\\?", "help", "help;"):
                session.screen.text(_HELP)
                continue
            try:
                session.run(text)
            except HeadraceError as error:
                session.screen.line.warning(str(error))
                code = code or error.exit_code
            except KeyboardInterrupt:
                session.screen.line.warning("stopped")
    finally:
        session.close()
    return 0 if interactive else code


def _typed(read: Callable[[str], str], *, interactive: bool) -> Iterator[str]:
    """Texts that end with `;`, and commands with a backslash; the rest at the end of input too."""
    lines: list[str] = []
    while True:
        prompt = ("headrace> " if not lines else "      ... ") if interactive else ""
        try:
            line = read(prompt)
        except EOFError:
            if any(map(str.strip, lines)):
                yield "\n".join(lines)
            return
        except KeyboardInterrupt:
            lines = []
            print(file=sys.stderr)  # noqa: T201 - the next prompt is below ^C
            continue
        if not lines and line.strip() in ("\\q", "quit", "exit", "quit;", "exit;"):
            return
        if not lines and line.strip() in ("\\h", "\\?", "help", "help;"):
            yield line.strip()
            continue
        if lines or line.strip():
            lines.append(line)
        if lines and is_complete("\n".join(lines)):
            yield "\n".join(lines)
            lines = []


def is_complete(text: str) -> bool:
    """True when the text's last token is `;`. Text that has no tokens (an open quote) waits for more lines."""
    try:
        words = [token for token in tokens(text) if token.kind != "end"]
    except UserError:
        return text.rstrip().endswith(";") and text.count("'") % 2 == 0
    return bool(words) and words[-1].text == ";"
