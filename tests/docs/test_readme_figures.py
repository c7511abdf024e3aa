"""The figures of the README are those of the pages with measurements."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from benchmarks.readme import README, figures, pages, with_figures


def test_the_readme_has_the_figures_of_the_pages() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == with_figures(text, pages()), "run `python -m benchmarks.readme`"


def test_other_measurements_are_other_figures() -> None:
    """Each paragraph follows the page that it links to."""
    before = _paragraphs(figures(pages()))
    assert len(before) == 8
    for name in ("sliding", "queries", "default", "startup", "epoch", "latency", "past-1000m"):
        changed: dict[str, Any] = copy.deepcopy(dict(pages()))
        for row in changed[name]["measurements"]:
            row.update({column: _doubled(value) for column, value in row.items()})
        after = _paragraphs(figures(changed))
        differ = [old for old, new in zip(before, after, strict=True) if old != new]
        assert len(differ) == 1
        assert f"results/{name}.md" in differ[0]


def test_a_missed_threshold_is_listed() -> None:
    changed: dict[str, Any] = copy.deepcopy(dict(pages()))
    ratio = changed["queries"]["ratios"][0]
    assert ratio["passed"]
    ratio["passed"] = False
    assert f"- {ratio['what']}: " in figures(changed)
    assert f"- {ratio['what']}: " not in figures(pages())


def test_a_readme_without_a_place_for_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="figures"):
        with_figures("# Headrace\n", pages())


def _paragraphs(text: str) -> list[str]:
    return re.split(r"\n\n(?!- )", text)


def _doubled(value: Any) -> Any:
    """Rates and times; sizes and texts are as they were."""
    if isinstance(value, float):
        return value * 2
    if isinstance(value, list):
        return [_doubled(item) for item in value]
    return value * 2 if isinstance(value, int) and value > 100_000 and value % 1000 else value
