"""Binding of `FROM a UNION ALL b`: named streams with equal types of columns as one source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headrace.algebra.query import QueryScan, RelationScan, StreamScan, UnionAll
from headrace.errors import UnsupportedQuery, UserError
from headrace.language.binder.expressions.expression_binder import located
from headrace.language.syntax.ast import Source
from headrace.language.syntax.refusals import refuse

MAX_INPUTS: Final = 15
"""The maximum number of streams in a union: four bits of a row's position have the number of its stream."""
_UNNAMED: Final = "union"


def united(source: Source, scan_of: Callable[[Source], StreamScan | RelationScan | QueryScan]) -> UnionAll:
    """The union of a source and its `others`; `scan_of` finds the scan of a name.

    Raises `UserError` where columns do not agree, and `UnsupportedQuery` for anything but streams of accepted rows.
    """
    if len(source.others) >= MAX_INPUTS:
        refuse(
            f"a union is of at most {MAX_INPUTS} streams",
            source.others[MAX_INPUTS - 1].span,
            "Register the union of some of them as a query, and read that.",
        )
    inputs: list[StreamScan | QueryScan] = []
    for part in (replace(source, others=(), alias=None), *source.others):
        with located(part.span):
            inputs.append(_input(part, scan_of(part), inputs))
    inputs = [replace(item, alias=f"{index}") for index, item in enumerate(inputs)]
    first = inputs[0]
    times = {_time_place(item) for item in inputs}
    time = first.time if isinstance(first, StreamScan) and len(times) == 1 else None
    return UnionAll(tuple(inputs), source.alias or _UNNAMED, first.table, time)


def _time_place(part: StreamScan | QueryScan) -> int | None:
    """The index of its event time column."""
    time = part.time if isinstance(part, StreamScan) else None
    return None if time is None else part.table.names.index(time)


def _input(
    source: Source,
    scan: StreamScan | RelationScan | QueryScan,
    earlier: list[StreamScan | QueryScan],
) -> StreamScan | QueryScan:
    if isinstance(scan, RelationScan):
        raise UserError(
            f"'{source.name}' is a relation: only streams are united with UNION ALL",
            remedy="Join it: FROM a JOIN r ON ….",
        )
    if isinstance(scan, QueryScan) and scan.query is not None:
        raise UserError(
            f"'{source.name}' holds a relation: only streams are united with UNION ALL",
            remedy="Unite SELECTs: SELECT * FROM a UNION ALL SELECT * FROM b; or register an ISTREAM(SELECT …) over it.",
        )
    if isinstance(scan, StreamScan) and scan.channel != "rows":
        raise UnsupportedQuery(
            f"{scan.channel.upper()} rows of several streams cannot be read as one",
            remedy="Register a query over those of each stream.",
        )
    if earlier:
        _check_columns(scan, earlier[0])
    return scan


def _check_columns(scan: StreamScan | QueryScan, first: StreamScan | QueryScan) -> None:
    types, expected = [field.type for field in scan.table], [field.type for field in first.table]
    if types == expected:
        return
    remedy = f"Register a query that selects the columns of '{first.name}' in their order and types, and read that."
    if len(types) != len(expected):
        raise UserError(
            f"'{scan.name}' has {len(types)} columns, '{first.name}' has {len(expected)}: streams in UNION ALL have"
            " the same types of columns, in the same order",
            remedy=remedy,
        )
    index = next(index for index, kind in enumerate(types) if kind != expected[index])
    raise UserError(
        f"column {index + 1} of '{scan.name}', '{scan.table.names[index]}', is {types[index]}, that of"
        f" '{first.name}', '{first.table.names[index]}', is {expected[index]}",
        remedy=remedy,
    )
