"""The rows of docs/coverage.md with the state *done*, with the tests and the benchmark pages that they name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import quiet
from tests.mutants.sandbox import ROOT

PAGE = ROOT / "docs" / "coverage.md"
_ROW = re.compile(r"^\| (?:([A-Z]+-\d+) \| )?(.+?) \| done \| (.*) \|$")
_PATH = re.compile(r"\b(?:tests|benchmarks)/[\w/.-]*\w")


@dataclass(frozen=True, slots=True)
class Row:
    """One claim; `name` is its number in a paper's list, or the beginning of its text."""

    name: str
    what: str
    evidence: str

    def test_files(self) -> Iterator[str]:
        """The named test files, and those of named folders; not the soak."""
        seen = set()
        for path in map(ROOT.joinpath, self._named("tests/")):
            for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
                if (
                    file.name.startswith("test_")
                    and file.suffix == ".py"
                    and "soak" not in file.parts
                    and file not in seen
                ):
                    seen.add(file)
                    yield str(file.relative_to(ROOT))

    def page_faults(self) -> list[str]:
        """What keeps the named pages of benchmarks from being evidence: a missed bar, a busy machine, an old harness."""
        named = [ROOT / path for path in self._named("benchmarks/results/")]
        return [fault for page in named for fault in _faults(page.with_suffix(".json"))]

    def _named(self, below: str) -> list[str]:
        return [path for path in dict.fromkeys(_PATH.findall(self.evidence)) if path.startswith(below)]


def done() -> list[Row]:
    """All rows with the state *done*, in the order of the page."""
    matches = (_ROW.match(line) for line in PAGE.read_text(encoding="utf-8").splitlines())
    return [Row(row[1] or row[2][:60], row[2], row[3]) for row in matches if row]


def _faults(page: Path) -> Iterator[str]:
    if not page.exists():
        yield f"{page.name} does not exist"
        return
    report = json.loads(page.read_text(encoding="utf-8"))
    load = report.get("load_average_before")
    if load is None:
        yield f"{page.name} is of a harness before the load was recorded"
    elif not quiet.is_quiet(load):
        yield f"{page.name} was measured at a load of {load}"
    yield from (f"{page.name} misses: {ratio['what']}" for ratio in report["ratios"] if not ratio["passed"])
