"""Output of a command: answers and plans on stdout (as a table, CSV or JSON), messages on stderr, neither mixed with
the line of progress.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, TextIO

import pyarrow as pa

from headrace.cli.status_line import LiveLine
from headrace.connectors.formats.rendering import render, to_csv, to_text
from headrace.dataclass import dataclass

if TYPE_CHECKING:
    from headrace.language.statements.statement import Statement
    from headrace.runtime.statements.outcome import Outcome


@dataclass(slots=True)
class Screen:
    """Answers in one style. `several`: more than one answer will be shown, so each gets a heading."""

    out: TextIO
    line: LiveLine
    style: str
    several: bool = True
    shown: int = 0

    @staticmethod
    def standard(style: str | None, *, quiet: bool = False) -> Screen:
        """This process's stdout and stderr; without a style a table on a terminal, else csv."""
        chosen = style or ("table" if sys.stdout.isatty() else "csv")
        return Screen(sys.stdout, LiveLine(sys.stderr, quiet=quiet), chosen)

    def answer(self, name: str, table: pa.Table) -> None:
        """Show an answer."""
        self._write(self._heading(name) + render(table, self.text_style).decode())

    def rows(self, name: str, epoch: int, table: pa.Table) -> None:
        """Show further rows of an answer: csv without a heading has its header once."""
        if self.text_style == "csv" and not self.several:
            self._write(to_csv(table, header=not self.shown))
        elif self.text_style == "table":
            self._write(f"{self._gap()}{name}, epoch {epoch}\n{to_text(table)}")
        else:
            self.answer(name, table)

    def outcome(self, statement: Statement, outcome: Outcome) -> None:
        """Show what a statement did: its answer, or a sentence."""
        if outcome.warning is not None:
            self.line.warning(outcome.warning)
        if outcome.kind == "explain":
            self.text(outcome.message)
        elif outcome.table is not None:
            self.answer(outcome.name or " ".join(statement.text.split()), outcome.table)
        else:
            self.line.message(f"{outcome.message[:1].upper()}{outcome.message[1:]}.")

    def text(self, text: str) -> None:
        """Show text that is the answer, such as a plan."""
        self._write(
            (json.dumps({"text": text}, ensure_ascii=False) if self.text_style == "json" else text) + "\n"
        )

    @property
    def text_style(self) -> str:
        """The style of answers on stdout: binary formats are shown as a table."""
        return "table" if self.style == "parquet" else self.style

    def _heading(self, name: str) -> str:
        if self.text_style == "table":
            return f"{self._gap()}{name}\n"
        if self.text_style == "json":  # every line of several answers is JSON
            return json.dumps({"answer": name}, ensure_ascii=False) + "\n" if self.several else ""
        return f"{self._gap()}# {name}\n" if self.several else ""

    def _gap(self) -> str:
        return "\n" if self.shown else ""

    def _write(self, text: str) -> None:
        self.line.clear()
        self.shown += 1
        self.out.write(text)
        self.out.flush()
