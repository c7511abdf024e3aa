"""`headrace demo`: a year of flights replayed as streams; queries are registered and dropped while it runs."""

from __future__ import annotations

import time as stopwatch
from dataclasses import field
from importlib.resources import files
from pathlib import Path
from typing import Final

import pyarrow as pa

from headrace.cli.screen import Screen
from headrace.cli.signals import Interrupts, let_arrow_finish
from headrace.connectors.formats.rendering import to_text
from headrace.dataclass import dataclass
from headrace.examples.flights import prepare
from headrace.language.statements.parse_script import parse_script
from headrace.runtime.delivery.output_files import is_answer
from headrace.runtime.hub.hub import Hub
from headrace.runtime.introspection.loss_report import loss_report
from headrace.server.open_or_connect import open_hub
from headrace.time import Instant

_DATA: Final = "demo-data"
_JULY: Final[Instant] = 1_372_636_800_000_000  # 2013-07-01T00:00:00Z
_ROWS: Final = 4
_COMER: Final = """
CREATE QUERY far_away AS
  SELECT window_start AS week, dest, COUNT(*) AS flights, MAX(delay) AS longest_delay
  FROM departures [RANGE 7 DAYS SLIDE 7 DAYS]
  WHERE miles > 4000
  GROUP BY dest, window_start;
"""
_TRY: Final = (
    "INVOKE worst_destinations",
    "SHOW QUERIES; EXPLAIN QUERY delay_now",
    """
    CREATE QUERY honolulu AS SELECT window_start AS month, COUNT(*) AS landings, AVG(minutes) AS minutes
    FROM arrivals [RANGE 30 DAYS SLIDE 30 DAYS] WHERE dest = 'HNL' GROUP BY window_start; INVOKE honolulu
    """,
)
_GOER: Final = "DROP QUERY IF EXISTS for_a_while;"


def run_demo(home: Path, *, cores: int | None = None, local: bool = False, quiet: bool = False) -> int:
    """Replay the year into a home and show the queries' answers; the exit code."""
    screen = Screen.standard("table", quiet=quiet)
    screen.line.message(f"Preparing 655,000 events of real flights and weather in {home / _DATA}")
    prepare(home / _DATA)
    if not local:
        screen.line.message("Starting Spark")
    with (
        Interrupts() as stop,
        stop.giving_up(screen.line.warning),
        open_hub(home, cores=cores, local=local, brief=True) as hub,
    ):
        stop.when_requested(hub.give_up_start)
        let_arrow_finish()
        hub.on_epoch(screen.line.update)
        hub.on_failure(screen.line.failed)
        return _Demo(hub, home, screen, stop).run()
    return 0


@dataclass(slots=True)
class _Demo:
    hub: Hub
    home: Path
    screen: Screen
    stop: Interrupts
    turned: bool = False
    _started: float = field(default_factory=stopwatch.monotonic)

    def run(self) -> int:
        before = self.hub.home.latest()
        self._define()
        self._started = stopwatch.monotonic()
        if not self._replay():
            self.screen.line.warning("Stopped. Run the demo again: it continues where it was.")
            return 0
        self._summary()
        self._answers()
        for sentence in loss_report(self.hub.home, before, self.hub.home.latest(), persistent=True):
            self.screen.line.message(sentence)
        self._next_steps()
        return 0

    def _define(self) -> None:
        data = str((self.home / _DATA).absolute()).replace("\\", "\\\\").replace("'", "\\'")
        script = (
            files("headrace.examples")
            .joinpath("flights.cql")
            .read_text(encoding="utf-8")
            .replace("{data}", data)
        )
        for outcome in self.hub.execute(script):
            self.screen.line.message(f"  {outcome.message}")

    def _replay(self) -> bool:
        """Epochs until all weeks are read; in July one query is registered and one dropped."""
        while self.stop.proceed():
            if self.hub.loop.step() is None:
                if self.turned:
                    return True
                self._turn()
            elif not self.turned and self._now() >= _JULY:
                self._turn()
        return False

    def _turn(self) -> None:
        self.turned = True
        self.screen.line.message(
            "\nWhile it runs, a query is registered (it reads the archived rows too) and another one dropped:"
        )
        for statement in parse_script(_COMER + _GOER):
            outcome = self.hub.carry_out(statement, _COMER + _GOER)
            self.screen.line.message(f"  {outcome.message}")
        self.screen.line.message("")

    def _now(self) -> Instant:
        departures = self.hub.home.latest().streams.get("departures")
        return departures.greatest if departures is not None else 0

    def _summary(self) -> None:
        line, seconds = self.screen.line, stopwatch.monotonic() - self._started
        queries = len(self.hub.catalog.queries)
        self.screen.line.message(
            f"\nRead {line.rows:,} rows in {line.epochs} epochs and {seconds:.0f} s, for {queries} standing queries.\n"
        )

    def _answers(self) -> None:
        for query in self.hub.catalog.queries.values():
            name = query.definition.name
            _, meaning = self.hub.operator_and_query(name)
            standing = self.hub.query(name)
            table = standing.invoke() if is_answer(meaning) else standing.history()
            count = f"{table.num_rows:,} rows" + (", the last:" if table.num_rows > _ROWS else "")
            if is_answer(meaning):
                count = f"a relation, now {table.num_rows:,} rows, the first:"
            shown = table.slice(0, _ROWS) if is_answer(meaning) else _last(table)
            self.screen.text(f"{name}: {count}\n" + _indented(to_text(shown)))

    def _next_steps(self) -> None:
        shell = (
            "headrace shell" if str(self.home) == "headrace-home" else f"headrace shell --home {self.home}"
        )
        steps = [f'  {shell} -e "{_oneline(step)}"' for step in _TRY]
        self.screen.text("\n".join([f"The home is {self.home.absolute()}. What to try next:", *steps]))


def _last(table: pa.Table) -> pa.Table:
    return table.slice(max(0, table.num_rows - _ROWS))


def _indented(text: str) -> str:
    """A table without its count, indented."""
    return "".join(f"  {line}\n" for line in text.splitlines()[:-1])


def _oneline(text: str) -> str:
    return " ".join(text.split())
