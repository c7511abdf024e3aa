"""A script over small files, run as a person would run it; times are written `@seconds` since 1970 in input and answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from headrace.time import EPOCH
from tests.cli.building import headrace

STREAM = """CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP)
  USING csv OPTIONS (path 's', header 'true', order 'name', maxFilesPerTrigger '1')
  TIMESTAMP BY at SLACK INTERVAL {slack} SECONDS;
"""
HEADER = "k,v,at"


def spelled(text: str) -> str:
    """`@-3.5` as `1969-12-31T23:59:56.500000Z`."""
    return re.sub(r"@(-?\d+(?:\.\d+)?)", lambda match: _stamp(float(match[1])), text)


def _stamp(seconds: float) -> str:
    return (EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat() + "Z"


def lines(text: str) -> str:
    """Lines parted by blanks or line ends, as a file."""
    return "".join(f"{line}\n" for line in spelled(text).split())


@dataclass(frozen=True, slots=True)
class Home:
    """A working directory with input in `s/` and a home in `home/`."""

    folder: Path

    def put(self, number: int, rows: str, header: str = HEADER) -> None:
        """A file of rows that appears whole; rows are parted by blanks or line ends."""
        folder = self.folder / "s"
        folder.mkdir(exist_ok=True)
        unfinished = folder / f".{number}"
        unfinished.write_text(lines(f"{header} {rows}"))
        unfinished.rename(folder / f"{number:03}.csv")

    def once(self, script: str, *more: str):
        """`headrace run --once` in this directory, on its home."""
        (self.folder / "script.cql").write_text(script)
        return headrace("run", "script.cql", "--once", "--home", "home", "--quiet", *more, cwd=self.folder)

    def answers(self, script: str, *more: str, style: str = "csv") -> dict[str, str]:
        """What `--output` holds after a run that succeeded, by query."""
        done = self.once(script, "--output", "out", "--format", style, *more)
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
        return {file.stem: file.read_bytes().decode() for file in (self.folder / "out").iterdir()}

    def shell(self, text: str):
        """`headrace shell -e`."""
        return headrace("shell", "--home", "home", "-e", text, cwd=self.folder)


def registered(queries: dict[str, str]) -> str:
    """CREATE QUERY for each of them."""
    return "".join(f"CREATE QUERY {name} AS {text};\n" for name, text in queries.items())


def all_answers(
    folder: Path, files: tuple[str, ...], queries: tuple[str, ...], *, slack: int = 0, before: str = ""
) -> dict[str, str]:
    """The answer of every query over the files of `s`, one file an epoch, in one run; by the query's text."""
    home = Home(folder)
    for number, rows in enumerate(files):
        home.put(number, rows)
    named = {f"q{number}": text for number, text in enumerate(queries)}
    answered = home.answers(STREAM.format(slack=slack) + before + registered(named))
    return {text: answered[name] for name, text in named.items()}
