"""docs/coverage.md names every row, and only evidence that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
LISTS = {
    "AQP": 61,
    "AU": 30,
    "CA": 12,
    "CQ": 15,
    "EWJU": 3,
    "CACQ": 3,
    "MIDS": 2,
    "EH": 11,
    "FJ": 18,
    "OS": 28,
    "PAT": 6,
    "PS": 34,
    "WIN": 39,
}
ROW = re.compile(r"^\| ([A-Z]+-\d+) \| .+? \| (done|partly|not yet) \| (.*) \|$", re.MULTILINE)


def test_every_row_of_every_list_has_its_line_once() -> None:
    """A row in no list would be overlooked."""
    rows = [row for row, _, _ in ROW.findall(PAGE)]
    assert rows == [f"{name}-{number}" for name, count in LISTS.items() for number in range(1, count + 1)]


def test_what_is_claimed_has_evidence_that_exists() -> None:
    """Paths under tests/ and benchmarks/ are files or folders; nothing is done or partly done without a word on why."""
    claimed = [(row, evidence) for row, state, evidence in ROW.findall(PAGE) if state != "not yet"]
    assert len(claimed) > 20
    for row, evidence in claimed:
        assert evidence.strip(), f"{row} claims something without evidence"
    for path in set(re.findall(r"\b(?:tests|benchmarks)/[\w/.-]*\w", PAGE)):
        assert (ROOT / path).exists(), f"docs/coverage.md names {path}, which does not exist"
