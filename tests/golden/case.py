"""Golden cases as text: statements, input rows and expected rows in one file, in the manner of sqllogictest.

`docs/guide/report-a-bug.md` describes the format. A block is a header line and the lines below it, up to an empty line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SUFFIX: Final = ".slt"
TYPES: Final = "BDIPRT?"
READINGS: Final = ("answer", "emitted", "invoke")
SORTS: Final = ("nosort", "rowsort")
ALONE: Final = ("epoch", "seal", "spark", "cuts fixed")
_MARK: Final = "----"


class BadCase(Exception):
    """A file that is not a golden case, with its place and what to write instead."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a case: `kind` is the header's first word, `lines` its other lines, `expected` those below `----`.

    `first` and `end` are the lines of the file that `expected` takes: where `record` puts others.
    """

    number: int
    kind: str
    line: int
    words: tuple[str, ...]
    lines: tuple[str, ...]
    expected: tuple[str, ...] | None = None
    first: int = 0
    end: int = 0

    @property
    def text(self) -> str:
        """The statement, or the content of a file."""
        return "\n".join(self.lines)

    @property
    def reading(self) -> str | None:
        """How a query is read, None for other blocks: `answer`, `emitted` or `invoke`; `statement` of SHOW and the like."""
        if self.kind in READINGS:
            return self.kind
        if self.kind != "query":
            return None
        if re.match(r"(?i)\s*(INVOKE|SHOW|DESCRIBE)\b", self.text):
            return "statement"
        return next((word for word in self.words[1:] if word in READINGS), "answer")

    @property
    def registers(self) -> bool:
        """True for a query that the block itself defines."""
        return self.kind == "query" and self.reading != "statement"

    @property
    def query(self) -> str:
        """The name of the query that is read."""
        return self.words[0] if self.kind in READINGS else f"q{self.number}"

    @property
    def types(self) -> str:
        """A letter for each column of the answer."""
        return self.words[1] if self.kind in READINGS else self.words[0]

    @property
    def sorted(self) -> bool:
        """True where the order of rows does not count."""
        return "rowsort" in self.words


@dataclass(frozen=True, slots=True)
class Case:
    """A golden case and the text it was read from."""

    path: Path
    blocks: tuple[Block, ...]
    source: tuple[str, ...]

    @property
    def cuts_fixed(self) -> bool:
        """True where the file itself determines the epochs."""
        return any(block.kind in ("epoch", "cuts") for block in self.blocks)

    @property
    def for_spark(self) -> bool:
        """True for a case that is also run on Spark."""
        return any(block.kind == "spark" for block in self.blocks)

    def place(self, block: Block) -> str:
        """`file:line` of a block."""
        return f"{self.path}:{block.line}"

    def with_expected(self, answers: dict[Block, tuple[str, ...]]) -> str:
        """The file with other expected rows."""
        lines = list(self.source)
        for block in sorted(answers, key=lambda block: block.line, reverse=True):
            mark = [] if block.expected is not None else [_MARK]
            lines[block.first : block.end] = [*mark, *answers[block]]
        return "\n".join(lines) + "\n"


def read_case(path: Path) -> Case:
    """The case of a file. Raises `BadCase` with the line."""
    lines = path.read_text(encoding="utf-8").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    blocks = tuple(_block(number, lines, *part) for number, part in enumerate(_parts(lines)))
    case = Case(path, blocks, tuple(lines))
    for block in blocks:
        if problem := _problem(block):
            raise BadCase(f"{case.place(block)}: {problem}")
    return case


def _parts(lines: list[str]) -> Iterator[tuple[int, int]]:
    """First line and end of every block, without its comments."""
    start = 0
    for number, line in enumerate([*lines, ""]):
        if number == start and line.startswith("#"):
            start = number + 1
        elif not line.strip():
            if number > start:
                yield start, number
            start = number + 1


def _block(number: int, lines: list[str], start: int, end: int) -> Block:
    kind, *words = lines[start].split()
    body = lines[start + 1 : end]
    if _MARK not in body:
        return Block(number, kind, start + 1, tuple(words), tuple(body), None, end, end)
    mark = body.index(_MARK)
    first = start + 2 + mark
    return Block(
        number, kind, start + 1, tuple(words), tuple(body[:mark]), tuple(body[mark + 1 :]), first, end
    )


def _problem(block: Block) -> str | None:
    """What is wrong with a block, None for a good one."""
    header = " ".join((block.kind, *block.words))
    if header in ALONE:
        return f"'{header}' has no lines below it; leave a line empty" if block.lines else None
    match block.kind, block.words:
        case "statement", ("ok",) | ("error", *_):
            return None if block.text.strip() else "a statement is missing"
        case "query", (types, *options):
            return _problem_of_query(types, options, (*READINGS, *SORTS), has_text=bool(block.text.strip()))
        case (("answer" | "emitted" | "invoke"), (_, types, *options)):
            return _problem_of_query(types, options, SORTS, has_text=not block.text.strip())
        case "rows" | "file", (_,):
            return None
        case "punctuate", (_, _, *_):
            return None
    return (
        f"no block begins with '{header}'. There is: statement ok, statement error REGEX, query TYPES, answer NAME TYPES,"
        " emitted NAME TYPES, invoke NAME TYPES, rows STREAM, file PATH, punctuate STREAM INSTANT,"
        f" {', '.join(ALONE)}"
    )


def _problem_of_query(
    types: str, options: list[str], known: tuple[str, ...], *, has_text: bool
) -> str | None:
    if wrong := set(types) - set(TYPES):
        return f"'{min(wrong)}' is no type of a column: write one of {TYPES} for each column"
    if wrong := set(options) - set(known):
        return f"there is no option '{min(wrong)}': there is {', '.join(known)}"
    return (
        None if has_text else "`query` has a statement below it, `answer`, `emitted` and `invoke` have a name"
    )
