"""The input of a query with a SELECT in its FROM: the answer of that SELECT over the same history, as a stream.

A SELECT that is a relation is evaluated where it is read, instant by instant (`reference/relations.py`).
"""

from __future__ import annotations

from headrace.algebra.query import Query, derived_in
from headrace.reference.evaluate import stream_answer, windows_answer
from headrace.reference.history import History
from headrace.reference.relational import Rejects


def with_derived(
    query: Query, history: History, *, final: bool = False, rejects: Rejects | None = None
) -> History:
    """The history with the answers of SELECTs in FROM, each under its query."""
    for _, inner in derived_in(query):
        history = with_derived(inner, history, final=final, rejects=rejects)
        if inner.emission != "relation":
            answer = windows_answer if inner.emission == "windows" else stream_answer
            rows = answer(inner, history, history.punctuation(inner), final=final, rejects=rejects)
            history = history.with_results(inner, rows, inner)
    return history
