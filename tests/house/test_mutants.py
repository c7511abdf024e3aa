"""The mistakes that `make mutants` makes."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.operators import mutants


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("x = a < b", {"a <= b"}),
        ("x = a in b", {"a not in b"}),
        ("x = a + b", {"(a - b)"}),
        ("x = a and b", {"(a or b)"}),
        ("x = not a", {"bool(a)"}),
        ("x = min(a, b)", {"max(a, b)"}),
        ("x = a.any()", {"a.all()"}),
        ("x = 3", {"4"}),
        ("x = True", {"False"}),
        ("x = a", set()),
        ("x: Literal[3] = a", set()),
        ("x = zip(a, strict=True)", set()),
        ("@dataclass(frozen=True)\nclass A: ...", set()),
    ],
)
def test_each_kind_of_mistake_is_made_once(line: str, changes: set[str]) -> None:
    mistakes = list(mutants(line + "\n", {1}))
    assert {mutant.after for mutant in mistakes} == changes
    for mutant in mistakes:
        ast.parse(mutant.source)
        assert mutant.source != line + "\n"


def test_only_the_lines_that_are_asked_for_are_changed() -> None:
    source = "x = 1\ny = 2\nz = 3\n"
    assert [(mutant.line, mutant.source) for mutant in mutants(source, {2})] == [(2, "x = 1\ny = 3\nz = 3\n")]
