"""A property that asks for a number of examples tries more in a soak, and fewer in `make narrow`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tests.examples import examples

TESTS = Path(__file__).parents[1]
COUNTED_ELSEWHERE = {"conftest.py", "examples.py", "mutants/observing.py", "server/test_fuzz.py"}


@pytest.mark.parametrize(
    ("profile", "quick", "counted", "tried"),
    [
        ("quick", 30, False, 30),
        ("quick", 150, False, 150),
        ("soak", 30, False, 1200),
        ("narrow", 30, False, 15),
        ("narrow", 8, False, 8),
        ("narrow", 30, True, 30),
    ],
)
def test_examples_follow_the_profile(profile: str, quick: int, counted: bool, tried: int) -> None:
    former = settings()
    settings.load_profile(profile)
    try:
        assert examples(quick, counted=counted).max_examples == tried
    finally:
        settings.register_profile("former", former)
        settings.load_profile("former")


def test_every_number_of_examples_follows_the_profile() -> None:
    own = {
        str(file.relative_to(TESTS))
        for file in TESTS.rglob("*.py")
        if "max_examples=" in file.read_text(encoding="utf-8")
    }
    assert own - {f"house/{Path(__file__).name}"} == COUNTED_ELSEWHERE
