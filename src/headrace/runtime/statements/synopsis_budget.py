"""Synopsis budget: the accuracy of approximate aggregates when all synopses of a hub share so many bytes a group.

A query with WITHIN gets the bytes that it needs, or is refused. Where APPROX_… leaves WITHIN out, the least error that fits is
written into the registered text: the text is the truth, so a restart, with whatever budget, has the same synopses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from headrace.algebra.expressions.aggregates import APPROXIMATE, canonical
from headrace.catalog.catalog import Catalog, CatalogQuery
from headrace.catalog.definitions import QueryDefinition
from headrace.errors import UserError
from headrace.language.parser.query import parse_select
from headrace.language.syntax.ast import FunctionCall
from headrace.runtime.plan.epoch_planner import operator_of

PERCENTS: Final = (1, 2, 5, 10, 20, 50)
"""The errors that are tried, the best first; the first is the default without a budget."""

_APPROXIMATE: Final = re.compile("APPROX_|WITHIN|BUCKETS", re.IGNORECASE)


def affordable(catalog: Catalog, definition: QueryDefinition, limit: int | None) -> QueryDefinition:
    """The definition with the accuracy that fits into the limit, next to the other queries' synopses.

    A registered query whose text differs only in a chosen accuracy stays as it is.

    Raises `UserError` when none fits, and for every mistake in the text.
    """
    existing = catalog.query(definition.name)
    if not _APPROXIMATE.search(definition.text) or (limit is None and existing is None):
        return definition
    insertions = _left_out(definition.text)
    texts = [_within(definition.text, insertions, percent) for percent in PERCENTS if insertions] or [
        definition.text
    ]
    if existing is not None and existing.definition.text in texts:
        return replace(definition, text=existing.definition.text)
    if limit is None or not _needs(catalog, definition):
        return definition
    others = (query for query in catalog.queries.values() if query is not existing)
    spent = sum(sum(operator_of(catalog, query).synopsis_bytes.values()) for query in others)
    for text in texts:
        candidate = replace(definition, text=text)
        needed = _needs(catalog, candidate)
        if spent + needed <= limit:
            return candidate
    raise UserError(
        f"the synopses of this query take up to {needed:,} bytes a group; of {limit:,} there are {max(limit - spent, 0):,} left",
        remedy="Allow a greater error by WITHIN p PERCENT, drop a query with synopses, or open the home with more synopsis_bytes.",
    )


def _needs(catalog: Catalog, definition: QueryDefinition) -> int:
    operator = operator_of(catalog, CatalogQuery(definition, catalog.position))
    return sum(operator.synopsis_bytes.values())


def _left_out(text: str) -> list[int]:
    """Positions for a default WITHIN: the ends of approximate aggregates without it."""
    ends = {
        call.span.end
        for call in _calls(parse_select(text))
        if canonical(call.name) in APPROXIMATE and call.within is None
    }
    return sorted(ends, reverse=True)


def _calls(node: Any) -> Iterator[FunctionCall]:
    """All function calls of a syntax tree."""
    if isinstance(node, FunctionCall):
        yield node
    if isinstance(node, tuple | list):
        for part in node:
            yield from _calls(part)
    elif is_dataclass(node):
        for field in fields(node):
            yield from _calls(getattr(node, field.name))


def _within(text: str, insertions: list[int], percent: int) -> str:
    for at in insertions:
        text = f"{text[:at]} WITHIN {percent} PERCENT{text[at:]}"
    return text
