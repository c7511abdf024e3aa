"""What operators the law's queries are lowered to comes back from a plan's files as it was, and damage is always found."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.algebra.query import Query
from headrace.errors import CorruptStore, UserError
from headrace.planner.lowering.lower import lower
from headrace.runtime.plan.plan_classes import codec
from headrace.store.files.envelope import seal, unseal
from tests.laws import strategies as some
from tests.laws import test_approximate, test_correlated, test_memberships, test_revisions
from tests.laws.test_laws import KINDS

QUERIES: dict[str, Callable[[], st.SearchStrategy[Query]]] = {
    **KINDS,
    "windows with synopses": lambda: test_approximate.queries(test_approximate.windows()),
    "relations with synopses": lambda: test_approximate.queries(test_approximate.relations()),
    "rows beside their group's aggregate": test_correlated.queries,
    "subqueries of WHERE": test_memberships.queries,
    "revised sessions": test_revisions.session_queries,
    "any window": some.window_queries,
    "any relation": some.relation_queries,
}


def written(query: Query) -> tuple[object, bytes, dict[str, bytes]]:
    """An operator, and its bytes in a file."""
    try:
        operator = lower("q", query, "q")
    except UserError:
        assume(False)
    encoded = codec().encode((operator,))
    return operator, seal("plan segment", 1, encoded.body), dict(encoded.apart)


@pytest.mark.parametrize("kind", QUERIES)
@given(data=st.data())
def test_an_operator_comes_back_from_its_file_as_it_was(kind: str, data: st.DataObject) -> None:
    operator, file, apart = written(data.draw(QUERIES[kind](), "query"))
    (decoded,) = codec().decode(unseal("plan segment", 1, file, "f"), apart.__getitem__)
    assert decoded == operator
    assert type(decoded) is type(operator)
    assert seal("plan segment", 1, codec().encode((decoded,)).body) == file
    assert b"pickle" not in file
    assert json.loads(file.split(b"\n")[1])["records"]


@given(data=st.data())
def test_a_damaged_file_is_never_read_as_another_plan(data: st.DataObject) -> None:
    _, file, apart = written(data.draw(KINDS["windows of users"](), "query"))
    at = data.draw(st.integers(0, len(file) - 1), "place")
    byte = data.draw(st.integers(0, 255), "byte")
    cut = data.draw(st.booleans(), "cut")
    spoilt = file[:at] if cut else file[:at] + bytes([byte]) + file[at + 1 :]
    assume(spoilt != file)
    with pytest.raises(CorruptStore):
        codec().decode(unseal("plan segment", 1, spoilt, "f"), apart.__getitem__)
