"""How a query of a catalogue is written down with what it emits: histories as text, answers as text.

A history's lines are `instant stream values`, its instants seconds; values leave the time column out. An answer is
`instant: rows`, each row its values with commas between them; `#` begins a note.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from headrace.algebra.query import Query
from headrace.time import SECOND

Row = dict[str, Any]
Coming = list[tuple[str, Row]]
"""Rows with their streams, in order of arrival."""
Emitted = list[tuple[int, str]]
"""What is emitted: instant, and the row with its sign as it is printed; in a canonical order."""


@dataclass(frozen=True)
class Asked:
    """A query, and what it emits."""

    text: str
    answer: str
    tied: bool = True
    """False: rows of one instant may be taken in any order."""

    @property
    def expected(self) -> Emitted:
        emitted, at = [], 0
        for token in " ".join(line.partition("#")[0] for line in self.answer.split("\n")).split():
            if token.endswith(":"):
                at = seconds(token[:-1])
            else:
                emitted.append((at, token))
        return sorted(emitted)


@dataclass(frozen=True)
class Past:
    """Streams by name with their columns, rows, and queries over them."""

    streams: Mapping[str, str]
    lines: str
    queries: Mapping[str, Asked]
    times: Mapping[str, str] = field(default_factory=dict)
    """Of the streams whose time column is one of those named; the others have one more, `at`."""
    functions: Mapping[str, Callable[[str, str], bool]] = field(default_factory=dict)
    """Of two texts, to a truth value."""

    def time(self, stream: str) -> str:
        """The name of its time column."""
        return self.times.get(stream, "at")

    def columns(self, stream: str) -> dict[str, str]:
        """Names and types."""
        columns = dict(declared.split() for declared in self.streams[stream].split(", "))
        return columns if stream in self.times else columns | {"at": "TIMESTAMP"}

    @property
    def rows(self) -> Coming:
        coming: Coming = []
        for line in filter(str.strip, self.lines.replace("\n", ";").split(";")):
            at, stream, *values = line.split()
            texts_of_values = iter(values)
            texts = {
                name: at if name == self.time(stream) else next(texts_of_values)
                for name in self.columns(stream)
            }
            assert next(texts_of_values, None) is None, line
            kinds = self.columns(stream)
            coming.append((stream, {name: value(text, kinds[name]) for name, text in texts.items()}))
        return coming


def seconds(text: str) -> int:
    """An instant."""
    return int(Decimal(text) * SECOND)


def value(text: str, kind: str) -> Any:
    """A value of a history."""
    return None if text == "null" else {"INT": int, "STRING": str, "TIMESTAMP": seconds}[kind](text)


def printed(answered: Sequence[Any], query: Query) -> Emitted:
    """An answer of (instant, row) or (instant, sign, row) in the form in which it is written."""
    emitted = []
    for at, *sign, row in answered:
        shown = [shown_value(row[field.name], field.type.name) for field in query.schema]
        emitted.append((at, "".join("+" if sign_ > 0 else "-" for sign_ in sign) + ",".join(shown)))
    return sorted(emitted)


def shown_value(cell: Any, kind: str) -> str:
    """A value of an answer."""
    if cell is None:
        return "null"
    return f"{Decimal(cell) / SECOND:f}" if kind == "TIMESTAMP" else str(cell)
