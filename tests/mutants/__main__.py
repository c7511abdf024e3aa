"""Mutation testing of a change: `make mutants` puts mistakes into the lines that differ from a commit and lists those that survive.

Each mutant runs the tests that import its module, in a copy of the sources. A mutant survives when they all pass.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.mutants.operators import Mutant, mutants
from tests.mutants.sandbox import ROOT, sandbox

_HUNK = re.compile(r"^@@ .* \+(\d+)(?:,(\d+))? @@")
_MOST_TESTS = 6
_MARKS = "not spark and not soak"


def changed_lines(base: str) -> dict[Path, set[int]]:
    """Module → its lines that are not in `base`."""
    command = ["git", "diff", "-U0", "--diff-filter=AMR", "-M50%", base, "--", "src/headrace"]
    diff = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    lines: dict[Path, set[int]] = defaultdict(set)
    module = None
    for line in diff.splitlines():
        if line.startswith("+++ "):
            module = Path(line[6:]) if line.endswith(".py") else None
        elif module is not None and (hunk := _HUNK.match(line)):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines[module] |= set(range(first, first + count))
    return lines


def tests_of(module: Path) -> list[str]:
    """The test files that import a module: the one that is named after it first, then the shortest."""
    dotted = ".".join(module.with_suffix("").parts[1:])
    room, _, name = dotted.rpartition(".")
    imported = re.compile(rf"\b{re.escape(dotted)}\b|from {re.escape(room)} import [^\n]*\b{name}\b")
    paths = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if "soak" not in path.parts and imported.search(path.read_text(encoding="utf-8"))
    ]
    paths.sort(key=lambda path: (path.stem != f"test_{name}", path.stat().st_size))
    return [str(path.relative_to(ROOT)) for path in paths[:_MOST_TESTS]]


def chosen(base: str, most: int, seed: int, only: str) -> Iterator[tuple[Path, Mutant]]:
    """At most so many mutants of the change, drawn by a seed."""
    every = [
        (module, mutant)
        for module, lines in sorted(changed_lines(base).items())
        if only in str(module)
        for mutant in mutants((ROOT / module).read_text(encoding="utf-8"), lines)
    ]
    sys.stdout.write(f"{len(every)} mutants of {base}..; {min(most, len(every))} are tried (seed {seed})\n")
    yield from random.Random(seed).sample(every, min(most, len(every)))


def main() -> int:
    """Print each mutant's fate and the share that was noticed; 1 when one survived."""
    parser = argparse.ArgumentParser(prog="make mutants ARGS=…", description=__doc__)
    parser.add_argument(
        "--base", default="HEAD~1", help="the commit that the change is measured against (default: HEAD~1)"
    )
    parser.add_argument("--most", type=int, default=60, help="how many mutants are tried (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="which of them are drawn (default: 0)")
    parser.add_argument("--only", default="", help="modules whose path contains this text")
    parser.add_argument(
        "--seconds", type=int, default=180, help="the longest run of one mutant's tests (default: 180)"
    )
    given = parser.parse_args()
    noticed, survivors, untested = 0, [], set()
    with sandbox() as copy:
        for module, mutant in chosen(given.base, given.most, given.seed, given.only):
            tests = tests_of(module)
            place = f"{module}:{mutant.line}: {mutant.before} → {mutant.after}"
            if not tests:
                untested.add(module)
            elif copy.fate(module, mutant, tests, given.seconds, _MARKS).how == "survived":
                survivors.append(place)
                sys.stdout.write(f"SURVIVED {place}\n")
            else:
                noticed += 1
            sys.stdout.flush()
    tried = noticed + len(survivors)
    sys.stdout.write(f"{noticed} of {tried} mutants were noticed\n")
    if untested:
        sys.stdout.write("imported by no test: " + ", ".join(map(str, sorted(untested))) + "\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
