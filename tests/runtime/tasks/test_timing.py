"""Scan groups of a task: how operators share is found once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.runtime.tasks import timing


def test_how_operators_share_is_found_again_for_other_states_in_row_layout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[set[str]] = []

    def noting(_: Iterable[object], layouts: Collection[str]) -> list[Any]:
        found.append(set(layouts))
        return []

    monkeypatch.setattr(timing, "groups", noting)
    operators: list[Any] = [SimpleNamespace(id="q"), SimpleNamespace(id="r")]
    for layouts in ((), {"a"}, frozenset("a"), {"a", "b"}, (), ()):
        assert timing.timed(operators, {}, layouts) == []
    assert found == [set(), {"a"}, {"a", "b"}, set()]
    timing.timed(operators[:1], {})
    assert found[4:] == [set()]
