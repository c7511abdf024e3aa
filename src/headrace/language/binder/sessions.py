"""Binding of `GROUP BY session_window(t, gap), k`: the session window of the stream, partitioned by the other keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.algebra.expressions.expression import Named
from headrace.algebra.windows.window import Session
from headrace.errors import Span
from headrace.language.binder.sources.from_clause import From
from headrace.language.syntax.refusals import refuse


def per_group(sources: From, keys: Sequence[Named], span: Span) -> From:
    """The sources with the window partitioned by the keys of GROUP BY.

    Raises `UnsupportedQuery` over a join with a relation.
    """
    stream = sources.stream
    assert isinstance(stream.window, Session)
    if sources.relations:
        refuse(
            "session_window over a join is not available: its sessions are of the stream's own rows",
            span,
            "Use FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(t), gap) and join that.",
        )
    window = replace(stream.window, partition=tuple(key.expression for key in keys))
    scope = replace(
        sources.scope,
        sources=tuple(
            replace(source, window=window) if source is stream else source for source in sources.scope.sources
        ),
    )
    return replace(sources, stream=replace(stream, window=window), scope=scope)
