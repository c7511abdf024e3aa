"""Mutation testing of docs/coverage.md: the tests that a row names must fail for a mistake in the code that the row describes.

For each row with the state *done*: the tests it names run once, to see which lines they execute; in functions that share words with
the row, up to `--mutants` mistakes are made, one at a time, until one gives a wrong answer that a named test notices. Only tests
of files that execute the mistaken line run. Rows of which nothing was noticed are the first of the table, to be read by hand. Pages of
benchmarks that a row names must be of the present harness, on a quiet machine, with every bar met.

The journal keeps each row with a digest of its tests and the code: a run that was cut short continues, changed rows are tried again.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks import folders
from tests.mutants.choosing import Chosen, chosen, words
from tests.mutants.coverage_page import Row, done
from tests.mutants.findings import Finding, Journal, Try, table
from tests.mutants.sandbox import ROOT, Sandbox, sandbox
from tests.mutants.traces import Traced, Traces, digest

_EXAMPLES = 5
_JUDGE = Path("src/headrace/reference")
"""What the laws compare with: a mistake in it is noticed, and shows nothing of what is compared."""


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
    add("--quick", action="store_true", help="one mistake that is noticed in any way is enough for a row")
    add("--more", action="store_true", help="further mistakes in rows that have not had enough")
    add(
        "--folder",
        type=Path,
        default=folders.cache() / "mutants",
        help="of the journal, the traces and table.md (default: .bench/mutants)",
    )
    return parser.parse_args()


def files_of(row: Row, named: Counter[str], most: int) -> list[str]:
    """Test files of a row: without Spark first, then those that fewest rows name."""
    files = list(row.test_files())
    wanted = set(words(row.what))

    def order(file: str) -> tuple[bool, int, int]:
        needs_spark = "mark.spark" in (ROOT / file).read_text(encoding="utf-8")
        return needs_spark, named[file], -len(wanted & set(words(Path(file).stem)))

    return sorted(files, key=order)[:most]


def against(row: Row, covering: Collection[Traced], others: Iterable[Traced], seconds: int) -> list[str]:
    """Tests that execute a line, then others, which may see what an earlier one has computed; about so many seconds of them.

    Among them first those that share words with the row, then short ones.
    """
    wanted = set(words(f"{row.what} {row.evidence}"))

    def order(test: Traced) -> tuple[int, float]:
        return -min(len(wanted & set(words(test.test.partition("::")[2]))), 4), test.seconds

    first = {test.test for test in covering}
    later = [test for test in others if test.test not in first]
    taken: list[str] = []
    spent = 0.0
    for test in [*sorted(covering, key=order), *sorted(later, key=order)]:
        if not taken or spent + test.seconds <= seconds:
            taken.append(test.test)
            spent += test.seconds
    return taken


def tried(place: Sandbox, row: Row, mistake: Chosen, traced: list[Traced], given: argparse.Namespace) -> Try:
    """The result of a row's tests on one mistake."""
    files = {test.test.partition("::")[0] for test in mistake.tests}
    others = [test for test in traced if test.test.partition("::")[0] in files]
    tests = against(row, mistake.tests, others, given.seconds)
    mutant = mistake.mutant
    fate = place.fate(mistake.module, mutant, tests, 2 * given.seconds, given.marks)
    where, change = f"{mistake.module}:{mutant.line}", f"{mutant.before} → {mutant.after}"
    return Try(where, mistake.function, change, len(tests), fate)


def finding(
    place: Sandbox, traces: Traces, row: Row, files: list[str], before: Finding, given: Any
) -> Finding:
    """What is known of a row after some more mistakes than before."""
    result = replace(before, files=files, tries=[*before.tries], pages=row.page_faults())
    traced = [test for file in files for test in traces.of(file)]
    judges = "Reference" not in row.what
    known = {(one.function, one.change) for one in result.tries}
    mistakes = (
        mistake
        for mistake in chosen(ROOT, f"{row.what} {row.evidence}", traced, given.seed)
        if not (judges and mistake.module.is_relative_to(_JUDGE))
        and (mistake.function, f"{mistake.mutant.before} → {mistake.mutant.after}") not in known
    )
    for mistake in islice(mistakes, given.mutants):
        result.tries.append(tried(place, row, mistake, traced, given))
        if is_enough(result, given):
            break
    return result


def is_enough(result: Finding, given: argparse.Namespace) -> bool:
    """Whether a row needs no further mistake."""
    return bool(result.noticed) if given.quick else result.is_noticed()


def inputs_of(row: Row) -> str:
    """A digest of what decides about a row."""
    return hashlib.sha256(
        repr([row.what, *(digest(ROOT, f) for f in row.test_files())]).encode()
    ).hexdigest()[:16]


def main() -> int:
    """Try the rows, and write the table; 1 when nothing was noticed of a row."""
    given = parsed()
    rows = done()
    named = Counter(file for row in rows for file in row.test_files())
    wanted = [row for row in rows if re.search(given.rows, row.name) and not re.search(given.but, row.name)]
    journal = Journal(given.folder / "journal.jsonl")
    with sandbox() as place:
        traces = Traces(place, given.folder / "traces", _EXAMPLES, given.tracing, given.marks)
        for row in wanted:
            inputs = inputs_of(row)
            before = journal.of(row.name, inputs)
            if before is None or (given.more and not is_enough(before, given)):
                nothing = Finding(row.name, inputs, [], [], [])
                files = files_of(row, named, given.files)
                result = finding(place, traces, row, files, before or nothing, given)
                journal.add(result)
                fates = ", ".join(one.fate.how for one in result.tries) or "nothing to try"
                sys.stdout.write(f"{row.name}: {fates}\n")
                sys.stdout.flush()
    known = [journal.by_row[row.name] for row in wanted if row.name in journal.by_row]
    (given.folder / "table.md").write_text(table(known), encoding="utf-8")
    noticed = sum(bool(result.noticed) for result in known)
    sys.stdout.write(
        f"Of {noticed} of {len(known)} rows a mistake was noticed: {given.folder / 'table.md'}\n"
    )
    return 0 if noticed == len(known) else 1


if __name__ == "__main__":
    raise SystemExit(main())
