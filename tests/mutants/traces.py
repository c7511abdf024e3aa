"""Which lines each test of a file executes, and how long it takes; kept in a folder until tests or code change."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.mutants import executed_lines, observing
from tests.mutants.sandbox import CODE, Sandbox

Place = tuple[str, int]
"""A module's path in the checkout, and a line of it."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A test that passes without a mistake."""

    test: str
    seconds: float
    lines: frozenset[Place]


class Traces:
    """Traces test files, each once. `examples` bounds how many cases a property tries meanwhile."""

    def __init__(self, sandbox: Sandbox, folder: Path, examples: int, seconds: int, marks: str) -> None:
        self._sandbox, self._folder = sandbox, folder
        self._examples, self._seconds, self._marks = examples, seconds, marks
        folder.mkdir(parents=True, exist_ok=True)

    def of(self, file: str) -> list[Traced]:
        """The passing tests of a file; none if it did not end in time."""
        kept = self._folder / f"{digest(self._sandbox.root, file)}.json"
        traces = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else self._traced(file)
        if traces:  # else no test ended in time, which may be another machine's load
            kept.write_text(json.dumps(traces), encoding="utf-8")
        return [
            Traced(
                test, seconds, frozenset((module, line) for module, lines in places.items() for line in lines)
            )
            for test, (seconds, places) in traces.items()
        ]

    def _traced(self, file: str) -> dict[str, tuple[float, dict[str, list[int]]]]:
        """Test → seconds and executed lines by module. Fixtures are those of every test of the file."""
        copy, folder = self._sandbox.copy, self._sandbox.lines
        traced = {
            executed_lines.FOLDER: str(folder),
            executed_lines.ROOTS: ":".join(str(copy / root) for root in CODE),
            observing.EXAMPLES: str(self._examples),
        }
        _, ended = self._sandbox.run([file], self._seconds, self._marks, traced)
        failed = {report["test"] for report in ended if report["failed"]}
        shared = _places(executed_lines.file_of(folder, file), copy)
        traces = {}
        for report in ended:
            test = report["test"]
            if test not in failed:
                own = _places(executed_lines.file_of(folder, test), copy)
                lines = {name: sorted(shared[name] | own[name]) for name in shared.keys() | own.keys()}
                traces[test] = (report["seconds"], lines)
        for path in folder.iterdir():
            path.unlink()
        return traces


def _places(file: Path, copy: Path) -> dict[str, set[int]]:
    lines: dict[str, set[int]] = defaultdict(set)
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        path, _, number = line.rpartition(":")
        lines[str(Path(path).relative_to(copy))].add(int(number))
    return lines


def digest(root: Path, file: str) -> str:
    """Of a test file and of all code."""
    return hashlib.sha256(_code(root) + (root / file).read_bytes()).hexdigest()[:16]


@cache
def _code(root: Path) -> bytes:
    digest = hashlib.sha256()
    for folder in CODE:
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.digest()
