"""Binding of windows that slide over the time of one side of a join, in a query that reads the join's results.

Such results have an instant, at which the join emits them, and the times of their rows among their columns. A window over one of
these columns reads the results as a stream with these event times.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from headrace.algebra.expressions.expression import columns_of
from headrace.algebra.query import Join, Project, Query, QueryScan, StreamScan, UnionAll, Windowed, walk
from headrace.language.binder.expressions.scope import Names
from headrace.language.syntax.ast import RangeWindow, StartingWindow, WindowClause
from headrace.schema import TIMESTAMP
from headrace.time import Duration

Scan: TypeAlias = StreamScan | QueryScan | UnionAll


def at_times_of_side(scan: Scan, clause: WindowClause, names: Names) -> Scan:
    """The scan of a join's results at the times of one side, if the window slides over such a column; else the same scan."""
    if not isinstance(scan, QueryScan) or not isinstance(clause, RangeWindow | StartingWindow):
        return scan
    slide: Duration | None = clause.slide
    if slide is None or clause.attribute is None:
        return scan
    name = clause.attribute.parts[-1].lower()
    column = next((column for column in _side_times(_read(scan, names)) if column.lower() == name), None)
    return scan if column is None else replace(scan, time=column)


def _read(scan: QueryScan, names: Names) -> Query | None:
    """The query whose results the scan reads."""
    if scan.query is not None:
        return scan.query
    registered = names.query(scan.name)
    return None if registered is None else registered[1]


def _side_times(query: Query | None) -> list[str]:
    """The columns of the results of an inner join of streams that are times of its sides, or computed from them alone."""
    nodes = [] if query is None else walk(query.root)
    windows = [node for node in nodes if isinstance(node, Windowed)]
    project = next((node for node in nodes if isinstance(node, Project)), None)
    if project is None or len(windows) < 2 or not any(isinstance(node, Join) for node in nodes):
        return []
    scans = [node for window in windows for node in walk(window) if isinstance(node, StreamScan | UnionAll)]
    times = {f"{scan.alias}.{scan.time}" for scan in scans if scan.time is not None}
    read = {
        column.name: columns_of(column.expression)
        for column in project.columns
        if column.expression.type == TIMESTAMP
    }
    return [name for name, columns in read.items() if columns and columns <= times]
