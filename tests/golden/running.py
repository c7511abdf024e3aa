"""A golden case run by the engine: its input in some epochs, its queries registered before or after the rows."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

import headrace as hr
from headrace.connectors.formats.rendering import render
from headrace.runtime.delivery.output_files import Exporter
from tests.golden.case import Block, Case
from tests.golden.values import instant, letters, printed, table

_MEMORY: Final = Path("/dev/shm")
_FOLDER: Final = _MEMORY if os.access(_MEMORY, os.W_OK) else None
"""Where homes are made: in memory if possible, since each run makes hundreds of small files."""

Opener = Callable[[Path], hr.Hub]


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run a case: into how many epochs input is cut, and when queries are registered."""

    cut: str
    registered: str = "before"
    reopened: bool = False

    def __str__(self) -> str:
        again = ", the home reopened" if self.reopened else ""
        return f"{self.cut}, queries registered {self.registered} the rows{again}"


PLAIN: Final = Variant("one epoch")
"""What `record` runs."""

VARIANTS: Final = (
    PLAIN,
    Variant("one row an epoch"),
    Variant("random epochs", "after"),
    Variant("random epochs", "after", reopened=True),
)


def variants_of(case: Case, variants: Sequence[Variant] = VARIANTS) -> list[Variant]:
    """Those that differ for this case: a file that determines its epochs has no other cuts."""
    cut = not case.cuts_fixed and any(block.kind == "rows" for block in case.blocks)
    distinct = {(v.cut if cut else "", v.registered, v.reopened): v for v in reversed(variants)}
    return [variant for variant in variants if variant in distinct.values()]


@dataclass(frozen=True, slots=True)
class Read:
    """The answer of one block: a letter for each column, and the rows as lines; of an error its message."""

    types: str
    rows: tuple[str, ...]


class Failed(Exception):
    """A block that could not be carried out, with its place."""


def run_case(case: Case, variant: Variant, opened: Opener) -> dict[Block, Read]:
    """What each query of a case answers, and each `statement error` reports."""
    with tempfile.TemporaryDirectory(prefix="golden-", dir=_FOLDER) as folder, contextlib.chdir(folder):
        run = _Run(case, variant, opened, opened(Path(folder) / "home"))
        try:
            return run.all_blocks()
        finally:
            run.hub.close()


@dataclass(slots=True)
class _Run:
    case: Case
    variant: Variant
    opened: Opener
    hub: hr.Hub
    found: dict[Block, Read] = field(default_factory=dict)
    pending: list[tuple[str, pa.Table]] = field(default_factory=list)

    def all_blocks(self) -> dict[Block, Read]:
        for step in _steps(self.case.blocks, before=self.variant.registered == "before"):
            with self.placed(step.blocks[0]):
                self.carry_out(step)
        return self.found

    @contextlib.contextmanager
    def placed(self, block: Block) -> Iterator[None]:
        """Errors within have the place of the block."""
        try:
            yield
        except Failed:
            raise
        except Exception as error:
            place = self.case.place(block)
            raise Failed(f"{place}: {self.variant}: {type(error).__name__}: {error}") from error

    def carry_out(self, step: _Step) -> None:
        block = step.blocks[0]
        if step.kind == "rows":
            self.pending.append((block.words[0], table(block.lines, self.columns(block.words[0]))))
            return
        self.take_in()  # `epoch` does no more than that
        match step.kind:
            case "statement":
                self.statement(block)
            case "register":
                self.register(step.blocks)
            case "read":
                self.register(step.blocks if self.variant.registered == "after" else ())
                self.read(step.blocks)
            case "file":
                path = Path(block.words[0])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text + "\n", encoding="utf-8")
            case "punctuate":
                self.hub.punctuate(block.words[0], instant(" ".join(block.words[1:])))
                self.hub.catch_up()
            case "seal":
                self.hub.run_once(seal=True)

    def columns(self, stream: str) -> dict[str, str]:
        shown = self.hub.execute(f"DESCRIBE {stream}")[0].table
        return dict(zip(shown["column"].to_pylist(), shown["type"].to_pylist(), strict=True))

    def take_in(self) -> None:
        """Push the rows that wait, in the epochs of the variant."""
        if not self.pending:
            return
        rows, self.pending = self.pending, []
        epochs = _epochs(rows, "one epoch" if self.case.cuts_fixed else self.variant.cut, self.case)
        for number, epoch in enumerate(epochs):
            if self.variant.reopened and number == len(epochs) // 2:
                self.reopen()
            for stream, part in epoch:
                self.hub.push(stream, part)
            self.hub.catch_up()

    def statement(self, block: Block) -> None:
        if block.words[0] == "ok":
            self.hub.execute(block.text)
            return
        try:
            self.hub.execute(block.text)
        except hr.UserError as error:
            self.found[block] = Read("", tuple(line.rstrip() for line in str(error).splitlines()))
        else:
            self.found[block] = Read("", ())

    def register(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            if block.registers:
                with self.placed(block):
                    self.hub.register(block.text, block.query)

    def read(self, blocks: Sequence[Block]) -> None:
        self.hub.catch_up()
        if self.variant.reopened:
            self.reopen()
        with tempfile.TemporaryDirectory(dir=_FOLDER) as exports:
            if any(block.reading == "answer" for block in blocks):
                Exporter(self.hub, Path(exports), "csv").finish(self.hub.finish())
            for block in blocks:
                with self.placed(block):
                    self.found[block] = self.answer(block, Path(exports))

    def answer(self, block: Block, exports: Path) -> Read:
        if block.reading == "answer":
            written = (exports / f"{block.query}.csv").read_text(encoding="utf-8")
            return Read(letters(self.hub.query(block.query).schema.arrow()), tuple(printed(written)))
        if block.reading == "statement":
            shown = self.hub.execute(block.text)[-1].table
            assert shown is not None, f"{block.text} shows no table"
        elif block.reading == "emitted":
            shown = self.hub.query(block.query).history()
        else:
            shown = self.hub.query(block.query).invoke()
        return Read(letters(shown.schema), tuple(printed(render(shown, "csv").decode())))

    def reopen(self) -> None:
        path = self.hub.path
        self.hub.close()
        self.hub = self.opened(path)


@dataclass(slots=True)
class _Step:
    kind: str
    blocks: list[Block]


def _steps(blocks: Sequence[Block], *, before: bool) -> Iterator[_Step]:
    """Blocks in the order in which they are carried out; queries below one another are read at once.

    With `before` a query is registered after the last statement above it.
    """
    for part in _by_statement(blocks):
        if part[0].kind == "statement":
            yield _Step("statement", [part.pop(0)])
        queries = [block for block in part if block.registers]
        if before and queries:
            yield _Step("register", queries)
        for is_read, some in itertools.groupby(part, key=lambda block: block.reading is not None):
            if is_read:
                yield _Step("read", list(some))
            else:
                yield from (_Step(block.kind, [block]) for block in some)


def _by_statement(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Parts that begin with a statement, except perhaps the first."""
    part: list[Block] = []
    for block in blocks:
        if block.kind == "statement" and part:
            yield part
            part = []
        part.append(block)
    yield part


Epoch = list[tuple[str, pa.Table]]


def _epochs(input_: Sequence[tuple[str, pa.Table]], cut: str, case: Case) -> list[Epoch]:
    """Rows in the order of the file, as epochs: for each the rows of its streams."""
    rows = [(stream, part.slice(number, 1)) for stream, part in input_ for number in range(part.num_rows)]
    if cut == "one epoch":
        places = []
    elif cut == "one row an epoch":
        places = list(range(1, len(rows)))
    else:
        chance = random.Random(zlib.crc32(case.path.name.encode()))
        places = [index for index in range(1, len(rows)) if chance.random() < 0.4]
    return [_together(rows[low:high]) for low, high in itertools.pairwise([0, *places, len(rows)])]


def _together(rows: Sequence[tuple[str, pa.Table]]) -> Epoch:
    """Rows of one epoch, those of a stream as one table."""
    streams = dict.fromkeys(stream for stream, _ in rows)
    return [(name, pa.concat_tables([part for stream, part in rows if stream == name])) for name in streams]
