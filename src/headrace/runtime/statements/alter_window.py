"""`ALTER QUERY name SET WINDOW [...]`: the query's text with other brackets.

Only aggregates over windows of time can continue with another window: their state is panes. Others are altered as a
whole, and computed again from the archive.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.algebra.query import StreamScan, walk
from headrace.catalog.catalog import Catalog, CatalogQuery
from headrace.catalog.definitions import QueryDefinition
from headrace.errors import UnsupportedQuery, UserError
from headrace.language.parser.query import parse_select
from headrace.language.statements.statement import SetWindow
from headrace.language.syntax.ast import Select, Source
from headrace.runtime.plan.bound_queries import bound
from headrace.runtime.plan.epoch_planner import operator_of


def with_window(catalog: Catalog, catalog_query: CatalogQuery, statement: SetWindow) -> QueryDefinition:
    """The definition of a query with other brackets, which continues from its stream's progress.

    Raises `UserError` for a query whose window cannot be changed by itself, or for such a window.
    """
    definition = catalog_query.definition
    _require_alterable(catalog, catalog_query)
    text = definition.text
    select = parse_select(text, definition.zone)
    source = next((source for source in _sources(select) if source.window is not None), None)
    if source is None or source.window is None or text[source.window.span.start] != "[":
        raise UserError(
            f"the window of '{definition.name}' is not in brackets",
            remedy="Use ALTER QUERY … AS with a whole SELECT, which is computed again over the archive.",
        )
    begin, end = source.window.span.start, source.window.span.end
    stop = end if text[end - 1] == "]" else text.index("]", end) + 1
    text = text[:begin] + statement.window + text[stop:]
    altered = replace(definition.healed(), text=text, continues=True)
    try:
        _require_alterable(catalog, CatalogQuery(altered, catalog.position))
    except UserError as error:
        error.span, error.text = statement.at, None  # the mistake can only be in the new brackets
        raise
    return altered


def _sources(select: Select) -> tuple[Source, ...]:
    return (select.source, *(join.source for join in select.joins))


def _require_alterable(catalog: Catalog, catalog_query: CatalogQuery) -> None:
    """Raises `UnsupportedQuery` for a query that is no aggregate over windows of time of a stream."""
    scans = [node for node in walk(bound(catalog, catalog_query).root) if isinstance(node, StreamScan)]
    panes = operator_of(catalog, catalog_query).over_panes
    if not scans or panes is None or panes.revisions is not None:
        raise UnsupportedQuery(
            f"the window of '{catalog_query.definition.name}' cannot be changed by itself: it is no aggregate over a window of time"
            " of a stream",
            remedy="Use ALTER QUERY … AS with a whole SELECT, which is computed again over the archive.",
        )
