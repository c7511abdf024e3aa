"""Every golden case answers as its file records: whatever the epochs, and whenever its queries are registered."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from tests.golden.case import SUFFIX, read_case
from tests.golden.checking import problems
from tests.golden.record import CASES, KNOWN_WRONG, local
from tests.golden.running import VARIANTS, Opener, Variant, variants_of

FILES = sorted(CASES.rglob(f"*{SUFFIX}"))
WRONG = sorted(KNOWN_WRONG.rglob(f"*{SUFFIX}"))
ON_SPARK = [path for path in FILES if read_case(path).for_spark]
SPARK_VARIANTS = (Variant("random epochs"), Variant("one epoch", "after", reopened=True))


def assert_right(path: Path, variants: tuple[Variant, ...], opened: Opener) -> None:
    case = read_case(path)
    wrong = problems(case, variants_of(case, variants), opened)
    assert not wrong, f"\n{wrong}"


def first_comment(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def named(path: Path) -> str:
    return str(path.relative_to(path.parents[1]).with_suffix(""))


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_case_answers_as_its_file_says(path: Path) -> None:
    assert_right(path, VARIANTS, local)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.xfail(reason=first_comment(path), strict=True)) for path in WRONG],
    ids=named,
)
def test_what_is_known_to_be_wrong_still_is(path: Path) -> None:
    """Expects the right answer. One that has become right is moved to `cases`."""
    assert_right(path, VARIANTS, local)


@pytest.mark.spark
@pytest.mark.parametrize("path", ON_SPARK, ids=named)
def test_a_case_answers_the_same_on_spark(path: Path, spark) -> None:
    assert_right(path, SPARK_VARIANTS, lambda home: hr.open(home, spark=spark, tasks=2))


def test_there_are_cases_for_both_executors() -> None:
    assert len(FILES) > 100
    assert len(ON_SPARK) > 20


@pytest.mark.parametrize("path", [*FILES, *WRONG], ids=named)
def test_a_case_begins_with_what_it_shows(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# ")
    assert any(block.expected is not None or block.kind == "statement" for block in read_case(path).blocks)
