"""`make golden`: writes the answers of golden cases into their files, so that a new or changed one is a diff to review."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import headrace as hr
from tests.golden.case import SUFFIX, BadCase, read_case
from tests.golden.checking import problems
from tests.golden.running import PLAIN, VARIANTS, Failed, run_case

HERE: Final = Path(__file__).parent
CASES: Final = HERE / "cases"
KNOWN_WRONG: Final = HERE / "known_wrong"


def local(home: Path) -> hr.Hub:
    """A home without a JVM."""
    return hr.open(home, local=True, tasks=1)


def record(path: Path) -> bool:
    """Write the answers of one run into a case; whether they were others."""
    case = read_case(path)
    answers = run_case(case, PLAIN, local)
    recorded = {
        block: answer.rows
        for block, answer in answers.items()
        if block.reading is not None or block.expected is not None
    }
    text, before = case.with_expected(recorded), path.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    return text != before


def main(files: list[str]) -> int:
    """Record some cases, or all; 1 when one answers differently in another variant, and so cannot be recorded."""
    paths = [Path(file).resolve() for file in files] or sorted(CASES.rglob(f"*{SUFFIX}"))
    failed = 0
    for path in paths:
        if wrong := _recorded(path, in_all_variants=bool(files)):
            sys.stderr.write(f"{wrong}\n")
            failed = 1
    return failed


def _recorded(path: Path, *, in_all_variants: bool) -> str:
    """Record a case; what prevents that, or what is wrong with it now."""
    if path.is_relative_to(KNOWN_WRONG):
        return f"{path}: the answers of a known wrong case are written by hand"
    try:
        if record(path):
            sys.stdout.write(f"recorded {path}\n")
    except (BadCase, Failed) as error:
        return str(error)
    return problems(read_case(path), VARIANTS, local) if in_all_variants else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
