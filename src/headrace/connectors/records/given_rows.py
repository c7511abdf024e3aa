"""Rows that a caller passes without a schema, as an Arrow table: the types of its columns are those of their values."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from headrace.errors import UserError
from headrace.schema import from_arrow

_PROBLEMS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, UserError)


def given_rows(name: str, rows: Any) -> pa.Table:
    """The rows of the source `name`: an Arrow table or batch, a pandas frame, or a list of dicts, as a table.

    Raises `UserError` with the column and row of a value that does not fit the values before it, or that no type holds; rows count
    from 0.
    """
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if hasattr(rows, "columns") and hasattr(rows, "to_numpy"):
        try:
            return pa.Table.from_pandas(rows, preserve_index=False)
        except _PROBLEMS:
            _find_misfit(name, {str(column): list(rows[column]) for column in rows.columns})
            raise
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
        raise UserError(
            f"'{name}' takes rows, not {type(rows).__name__}",
            remedy="Pass a pyarrow Table, a pandas DataFrame, or a list of dicts.",
        )
    return _of_dicts(name, list(rows))


def _of_dicts(name: str, rows: Sequence[Any]) -> pa.Table:
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise UserError(
                f"row {number} of '{name}' is {type(row).__name__}, not a dict",
                remedy="Pass a list of dicts, such as [{'k': 1, 'v': 2.5}].",
            )
    keys = dict.fromkeys(key for row in rows for key in row)
    columns = {str(key): [row.get(key) for row in rows] for key in keys}
    try:
        table = pa.table({column: pa.array(values) for column, values in columns.items()})
        for field in table.schema:
            from_arrow(field.type)
        return table
    except _PROBLEMS:
        _find_misfit(name, columns)
        raise


def _find_misfit(name: str, columns: Mapping[str, list[Any]]) -> None:
    """Raises `UserError` for the first value, of the first column with one, that makes its column impossible."""
    for column, values in columns.items():
        row = bisect_left(range(len(values)), True, key=lambda last: _problem(values[: last + 1]) is not None)
        if row == len(values):
            continue
        place = f"row {row} of '{name}': column {column} has {_shown(values[row])}"
        if (alone := _problem(values[row : row + 1])) is not None:
            raise UserError(
                f"{place}, which has no SQL type: {alone.message if isinstance(alone, UserError) else alone}",
                remedy="Convert the column before passing the rows.",
            )
        before = next(value for value in values if value is not None)
        raise UserError(
            f"{place}, and the rows before it values of another type, such as {_shown(before)}",
            remedy="Convert the column to one type, or pass a pyarrow Table with the type that it has to be.",
        )


def _problem(values: Sequence[Any]) -> Exception | None:
    try:
        from_arrow(pa.array(values, from_pandas=True).type)
    except _PROBLEMS as problem:
        return problem
    return None


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:60] + '…'} ({type(value).__name__})"
