"""Suggestions for names that are written a little wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import UserError
from headrace.runtime.hub.opening import open_hub

STREAM = "CREATE STREAM s (a BIGINT, t TIMESTAMP) USING push {} TIMESTAMP BY t;"


@pytest.mark.parametrize(
    ("statement", "suggested"),
    [
        (STREAM.format("") + "CREATE QUERY q AS SELECT SUMM(a) FROM s", "Did you mean 'sum' or 'signum'?"),
        (STREAM.format("") + "CREATE QUERY q AS SELECT avgg(a) FROM s", "Did you mean 'avg'?"),
        (STREAM.format("") + "CREATE QUERY q AS SELECT abss(a) FROM s", "Did you mean 'abs'?"),
        (STREAM.format("OPTIONS (retian '7 DAYS')"), "Did you mean 'retain'?"),
        (STREAM.format("OPTIONS (maxahead '1 DAY', archve 'none')"), "Did you mean 'archive'?"),
    ],
)
def test_aggregates_and_options_of_streams_are_among_the_similar_names(
    tmp_path: Path, statement: str, suggested: str
) -> None:
    with open_hub(tmp_path / "home", local=True) as hub, pytest.raises(UserError) as refused:
        hub.execute(statement)
    assert suggested in str(refused.value)
