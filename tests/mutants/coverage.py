"""Mutation testing of docs/coverage.md: does the test that a row names die of a mistake in the code that the row speaks about?

For each row that says *done*: the tests it names run once, to see which lines they execute; in functions that share words with
the row, up to `--mutants` mistakes are made, one at a time, until one gives a wrong answer that a named test notices. Only tests that
execute the mistaken line run. A row is shown when a mistake was noticed; a row that is not is looked at by hand. Pages of
benchmarks that a row names must be of the present harness, on a quiet machine, with every bar met.

The journal keeps each row with a digest of its tests and the code, so that a run that is cut short continues.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tests.mutants.choosing import Chosen, chosen, words
from tests.mutants.coverage_page import Row, done
from tests.mutants.sandbox import ROOT, Sandbox, sandbox
from tests.mutants.traces import Traced, Traces, digest

_FOLDER = ROOT / ".bench" / "mutants"
_EXAMPLES = 8


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="make coverage-mutants ARGS=…",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--rows", default="", help="a regular expression: only rows whose number or first words it finds")
    add("--but", default="$^", help="a regular expression: not these rows")
    add("--mutants", type=int, default=3, help="mistakes tried in a row, at most (default: 3)")
    add(
        "--files",
        type=int,
        default=3,
        help="test files of a row, at most: those that fewest rows name (default: 3)",
    )
    add("--seconds", type=int, default=60, help="tests against one mistake, about (default: 60)")
    add(
        "--tracing",
        type=int,
        default=240,
        help="seconds in which one test of a file ends, and half of those of all (default: 240)",
    )
    add("--marks", default="not soak", help="which tests: pytest's -m (default: 'not soak')")
    add("--seed", type=int, default=0, help="which mistakes are drawn in a function (default: 0)")
    add("--again", action="store_true", help="also rows that the journal has")
    add(
        "--folder",
        type=Path,
        default=_FOLDER,
        help="of the journal, the traces and table.md (default: .bench/mutants)",
    )
    return parser.parse_args()


class Journal:
    """What was found of each row: one JSON line each, the last one counts."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        self.found: dict[str, dict[str, Any]] = {found["row"]: found for found in map(json.loads, lines)}

    def has(self, row: Row, inputs: str) -> bool:
        """Whether the row was tried with these inputs."""
        return self.found.get(row.name, {}).get("inputs") == inputs

    def add(self, found: dict[str, Any]) -> None:
        """Keep what was found."""
        self.found[found["row"]] = found
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")


def files_of(row: Row, named: Counter[str], most: int) -> list[str]:
    """Test files of a row: without Spark first, then those that fewest rows name."""
    files = list(row.test_files())
    wanted = set(words(row.what))

    def order(file: str) -> tuple[bool, int, int]:
        needs_spark = "mark.spark" in (ROOT / file).read_text(encoding="utf-8")
        return needs_spark, named[file], -len(wanted & set(words(Path(file).stem)))

    return sorted(files, key=order)[:most]


def against(row: Row, tests: Iterable[Traced], seconds: int) -> list[str]:
    """Tests that speak of the row first, then short ones; about so many seconds of them, at least one."""
    wanted = set(words(f"{row.what} {row.evidence}"))
    ordered = sorted(
        tests,
        key=lambda test: (-min(len(wanted & set(words(test.test.partition("::")[2]))), 4), test.seconds),
    )
    taken, spent = [], 0.0
    for test in ordered:
        if not taken or spent + test.seconds <= seconds:
            taken.append(test.test)
            spent += test.seconds
    return taken


def tried(place: Sandbox, row: Row, mistake: Chosen, given: argparse.Namespace) -> dict[str, Any]:
    """What a row's tests say of one mistake."""
    tests = against(row, mistake.tests, given.seconds)
    fate = place.fate(mistake.module, mistake.mutant, tests, 2 * given.seconds, given.marks)
    return {
        "place": f"{mistake.module}:{mistake.mutant.line}",
        "function": mistake.function,
        "change": f"{mistake.mutant.before} → {mistake.mutant.after}",
        "tests": len(tests),
        "how": fate.how,
        "test": fate.test,
        "said": fate.said,
    }


def shown(
    place: Sandbox, traces: Traces, row: Row, files: Sequence[str], given: argparse.Namespace
) -> dict[str, Any]:
    """What is known of a row after its mistakes."""
    traced = [test for file in files for test in traces.of(file)]
    tries: list[dict[str, Any]] = []
    for mistake in islice(chosen(ROOT, f"{row.what} {row.evidence}", traced, given.seed), given.mutants):
        tries.append(tried(place, row, mistake, given))
        if tries[-1]["how"] == "wrong answer":
            break
    return {
        "row": row.name,
        "what": row.what,
        "files": files,
        "passing": len(traced),
        "tries": tries,
        "pages": row.page_faults(),
    }


def table(found: Iterable[dict[str, Any]]) -> str:
    """The page of a run: a line for each row, those that nothing was noticed of first."""
    lines = ["| Row | Tests | Tried | Noticed | By | Survivors | Pages |", "|---|---|---|---|---|---|---|"]
    for row in sorted(found, key=is_shown):
        noticed = [one for one in row["tries"] if one["how"] in ("wrong answer", "error", "hang")]
        survivors = [f"{one['place']}: {one['change']}" for one in row["tries"] if one["how"] == "survived"]
        by = "; ".join(f"{one['how']} in {one['test']}: {one['place']}: {one['change']}" for one in noticed)
        cells = [
            row["row"],
            ", ".join(row["files"]),
            len(row["tries"]),
            len(noticed),
            by,
            "; ".join(survivors),
        ]
        cells = [
            str(cell).replace("|", "\\|").replace("\n", " ") for cell in [*cells, "; ".join(row["pages"])]
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def is_shown(found: dict[str, Any]) -> bool:
    """Whether a mistake was noticed."""
    return any(one["how"] in ("wrong answer", "error", "hang") for one in found["tries"])


def main() -> int:
    """Try the rows, and write the table; 1 when a row is not shown."""
    given = parsed()
    rows = done()
    named = Counter(file for row in rows for file in row.test_files())
    wanted = [row for row in rows if re.search(given.rows, row.name) and not re.search(given.but, row.name)]
    journal = Journal(given.folder / "journal.jsonl")
    with sandbox() as place:
        traces = Traces(place, given.folder / "traces", _EXAMPLES, given.tracing, given.marks)
        for row in wanted:
            files = files_of(row, named, given.files)
            inputs = hashlib.sha256(
                repr([row.what, *(digest(ROOT, file) for file in files)]).encode()
            ).hexdigest()[:16]
            if given.again or not journal.has(row, inputs):
                found = {**shown(place, traces, row, files, given), "inputs": inputs}
                journal.add(found)
                fates = ", ".join(one["how"] for one in found["tries"]) or "nothing to try"
                sys.stdout.write(f"{row.name}: {fates}\n")
                sys.stdout.flush()
    known = [journal.found[row.name] for row in wanted if row.name in journal.found]
    (given.folder / "table.md").write_text(table(known), encoding="utf-8")
    not_shown = [found["row"] for found in known if not is_shown(found)]
    sys.stdout.write(
        f"{len(known) - len(not_shown)} of {len(known)} rows shown; see {given.folder / 'table.md'}\n"
    )
    return 1 if not_shown else 0


if __name__ == "__main__":
    raise SystemExit(main())
