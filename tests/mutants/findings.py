"""What is known of the rows of docs/coverage.md: a journal that continues where a run was cut short, and a table for people."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.mutants.sandbox import Fate

_HEAD = ("Row", "Tests", "Tried", "Noticed", "By", "Survivors", "Pages")


@dataclass(frozen=True, slots=True)
class Try:
    """A mistake in a function, and the result of the row's tests."""

    place: str
    function: str
    change: str
    tests: int
    fate: Fate

    def __str__(self) -> str:
        return f"{self.place} {self.function}: {self.change}"


@dataclass(frozen=True, slots=True)
class Finding:
    """A row after its mistakes. `inputs` is a digest of its tests and of all code, `pages` what its pages of benchmarks lack."""

    row: str
    inputs: str
    files: list[str]
    tries: list[Try]
    pages: list[str]

    @property
    def noticed(self) -> list[Try]:
        """The mistakes that a named test failed for."""
        return [one for one in self.tries if one.fate.noticed]

    def is_noticed(self) -> bool:
        """Whether a mistake gave a wrong answer that a test noticed: no other need be tried."""
        return any(one.fate.how == "wrong answer" for one in self.tries)


class Journal:
    """Findings as JSON lines; of a row the last one counts."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        self.by_row = {finding.row: finding for finding in map(_finding, map(json.loads, lines))}

    def of(self, row: str, inputs: str) -> Finding | None:
        """What was found of the row with these inputs."""
        finding = self.by_row.get(row)
        return finding if finding is not None and finding.inputs == inputs else None

    def add(self, finding: Finding) -> None:
        """Keep what was found."""
        self.by_row[finding.row] = finding
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(finding)) + "\n")


def _finding(kept: dict[str, Any]) -> Finding:
    tries = [Try(**{**one, "fate": Fate(**one["fate"])}) for one in kept["tries"]]
    return Finding(**{**kept, "tries": tries})


def table(findings: Iterable[Finding]) -> str:
    """A line for each row; first those of which nothing was noticed."""
    lines = [_line(_HEAD), _line(["---"] * len(_HEAD))]
    for row in sorted(findings, key=lambda finding: bool(finding.noticed)):
        noticed = [f"{one.fate.how} in {one.fate.test} ({one})" for one in row.noticed]
        survivors = [str(one) for one in row.tries if one.fate.how == "survived"]
        counts = (len(row.tries), len(noticed))
        lines.append(
            _line([row.row, ", ".join(row.files), *counts, *map("; ".join, (noticed, survivors, row.pages))])
        )
    return "".join(lines)


def _line(cells: Iterable[object]) -> str:
    escaped = (str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(escaped)} |\n"
