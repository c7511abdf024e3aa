"""How good may approximate aggregates be, when all synopses of a hub share so many bytes a group?

A query that says WITHIN gets what that takes, or is refused. Where APPROX_… leaves WITHIN out, the least error that there is room for is
written into the text that is registered: the text is the truth, so a restart, with whatever budget, finds the same synopses.
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
from headrace.language.parser.set_operators import parse_select
from headrace.language.syntax.ast import FunctionCall
from headrace.runtime.plan.epoch_planner import operator_of

PERCENTS: Final = (1, 2, 5, 10, 20, 50)
"""The errors that are tried, the best first; the first is what is meant without a budget."""

_APPROXIMATE: Final = re.compile("APPROX_|WITHIN|BUCKETS", re.IGNORECASE)


def affordable(catalog: Catalog, definition: QueryDefinition, limit: int | None) -> QueryDefinition:
    """The definition with the accuracy that fits into the limit beside the other queries' synopses.

    A query that is there already, and whose text differs in a chosen accuracy alone, stays as it is.

    Raises `UserError` when none does, and whatever is wrong with the text.
    """
    known = catalog.query(definition.name)
    if not _APPROXIMATE.search(definition.text) or (limit is None and known is None):
        return definition
    places = _left_out(definition.text)
    texts = [_within(definition.text, places, percent) for percent in PERCENTS if places] or [definition.text]
    if known is not None and known.definition.text in texts:
        return replace(definition, text=known.definition.text)
    if limit is None or not _needs(catalog, definition):
        return definition
    others = (query for query in catalog.queries.values() if query is not known)
    taken = sum(sum(operator_of(catalog, query).synopsis_bytes.values()) for query in others)
    for text in texts:
        wanted = replace(definition, text=text)
        needed = _needs(catalog, wanted)
        if taken + needed <= limit:
            return wanted
    raise UserError(
        f"the synopses of this query take up to {needed:,} bytes a group; of {limit:,} there are {max(limit - taken, 0):,} left",
        remedy="Allow a greater error by WITHIN p PERCENT, drop a query with synopses, or open the home with more synopsis_bytes.",
    )


def _needs(catalog: Catalog, definition: QueryDefinition) -> int:
    operator = operator_of(catalog, CatalogQuery(definition, catalog.position))
    return sum(operator.synopsis_bytes.values())


def _left_out(text: str) -> list[int]:
    """Where WITHIN would stand: the ends of approximate aggregates without it."""
    found = {
        call.span.end
        for call in _calls(parse_select(text))
        if canonical(call.name) in APPROXIMATE and call.within is None
    }
    return sorted(found, reverse=True)


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


def _within(text: str, places: list[int], percent: int) -> str:
    for place in places:
        text = f"{text[:place]} WITHIN {percent} PERCENT{text[place:]}"
    return text
