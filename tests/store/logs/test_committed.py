"""Typed entries of a manifest: what is written is read back, and a fact that is not known takes no room."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from headrace.store.logs.committed import (
    NEW_STREAM,
    CommittedStream,
    OperatorProgress,
    operators_from_json,
    operators_to_json,
)
from tests.store.committed_values import names, progress, streams


@given(streams)
def test_a_stream_is_read_as_it_was_written(stream: CommittedStream) -> None:
    assert CommittedStream.from_json(json.loads(json.dumps(stream.as_json()))) == stream


@given(st.dictionaries(names, progress))
def test_operators_are_read_as_they_were_written(operators: dict[str, OperatorProgress]) -> None:
    assert operators_from_json(json.loads(json.dumps(operators_to_json(operators)))) == operators


def test_optional_facts_are_written_only_where_they_are_known() -> None:
    assert list(NEW_STREAM.as_json()) == [
        *("next", "rows", "late", "rejected", "keep", "shed", "slack_needed", "punctuation", "greatest")
    ]
    assert list(CommittedStream(until=3, born=2).as_json())[-2:] == ["born", "until"]
    assert list(OperatorProgress().as_json()) == ["since", "closed", "replayed"]
    assert list(OperatorProgress(follows="s").as_json()) == ["since", "follows"]


def test_operators_at_one_position_share_a_record() -> None:
    alike = {f"q{number}": {"closed": 5, "replayed": 1, "since": 0} for number in range(3)}
    apart = {"q9": {"closed": 6, "replayed": 1, "since": 0}}
    operators = operators_from_json({**alike, **apart})
    assert len({id(operator) for operator in operators.values()}) == 2
    written = operators_to_json(operators)
    assert written == {**alike, **apart}
    assert written["q0"] is written["q2"]
