"""What does a query with a SELECT in its FROM read? The answer of that SELECT over the same history, as a stream."""

from __future__ import annotations

from headrace.algebra.query import Query, derived_in
from headrace.reference.evaluate import stream_answer, windows_answer
from headrace.reference.history import History
from headrace.reference.relational import Rejects


def with_derived(
    query: Query, history: History, *, final: bool = False, rejects: Rejects | None = None
) -> History:
    """The history where the answer of the SELECT in FROM is recorded too, under the name by which the query scans it."""
    scan = derived_in(query)
    if scan is None or scan.query is None:
        return history
    known = with_derived(scan.query, history, final=final, rejects=rejects)
    answer = windows_answer if scan.query.emission == "windows" else stream_answer
    told = answer(scan.query, known, known.punctuation(scan.query), final=final, rejects=rejects)
    return known.with_results(scan.name, told, scan.query)
