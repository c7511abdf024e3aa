"""Settings of all laws."""

from __future__ import annotations

import pytest

from headrace.operators.relations import interval_blocks


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a few instants are combined already: else no generated history would have blocks of them."""
    monkeypatch.setattr(interval_blocks, "FEW", 3)
