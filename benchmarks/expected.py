"""What every contender must answer: computed here with numpy alone, and the comparison with what it did answer."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.protocol import COLUMNS, RANGE_SECONDS, SLIDES

SUM_TOLERANCE = 1e-9
_SECOND_US = 1_000_000
_TYPES = dict(zip(COLUMNS, (pa.int64(), pa.int64(), pa.int64(), pa.float64(), pa.float64()), strict=True))


class WrongAnswer(Exception):
    """A contender's answer differs from what it must be: its time counts for nothing."""


def check(output: Path, task: str, count: int) -> int:
    """Compare the files below `output` with the truth; the number of result rows. Raises `WrongAnswer`."""
    wanted, answer = expected(task, count), _comparable(answer_of(output), count)
    for name in ("window_end", "key", "count", "max"):
        if not np.array_equal(wanted[name], answer[name]):
            raise WrongAnswer(_difference(output, name, wanted, answer))
    error = np.abs(answer["sum"] - wanted["sum"]) > SUM_TOLERANCE * np.abs(wanted["sum"])
    if error.any():
        raise WrongAnswer(_difference(output, "sum", wanted, answer, int(np.argmax(error))))
    return len(wanted["key"])


@cache
def expected(task: str, count: int) -> dict[str, np.ndarray]:
    """The windows of the first `count` rows that hold a row, by (window_end, key)."""
    counts, sums, tops = seconds(count)
    first = data.ORIGIN_US // _SECOND_US
    slide = SLIDES[task]
    parts: list[tuple[np.ndarray, ...]] = []
    for end in range(first + 1, first + len(counts) + RANGE_SECONDS):
        if end % slide:
            continue
        held = slice(max(0, end - RANGE_SECONDS - first), min(len(counts), end - first))
        n = counts[held].sum(axis=0)
        keys = np.flatnonzero(n)
        ends = np.full(len(keys), end * _SECOND_US)
        parts.append((ends, keys, n[keys], sums[held].sum(axis=0)[keys], tops[held].max(axis=0)[keys]))
    return {
        name: np.concatenate(column) for name, column in zip(COLUMNS, zip(*parts, strict=True), strict=True)
    }


@cache
def seconds(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """count, sum and max of each (second, key) of the first `count` rows."""
    length = -(-count // data.ROWS_PER_SECOND)
    cells = length * data.KEYS
    counts, sums, tops = np.zeros(cells, np.int64), np.zeros(cells), np.full(cells, -np.inf)
    for index, start in enumerate(range(0, count, data.ROWS_PER_FILE)):
        rows = data.table(index, min(data.ROWS_PER_FILE, count - start))
        second = (rows["at"].cast(pa.int64()).to_numpy() - data.ORIGIN_US) // _SECOND_US
        cell, value = second * data.KEYS + rows["key"].to_numpy(), rows["value"].to_numpy()
        counts += np.bincount(cell, minlength=cells)
        sums += np.bincount(cell, weights=value, minlength=cells)
        np.maximum.at(tops, cell, value)
    shape = (length, data.KEYS)
    return counts.reshape(shape), sums.reshape(shape), tops.reshape(shape)


def answer_of(output: Path) -> pa.Table:
    """All rows of the Parquet or CSV files below a folder, whatever the engine called them."""
    files = sorted(
        path
        for path in output.rglob("*")
        if path.is_file() and path.stat().st_size and not _is_private(path, output)
    )
    tables = [_read(path) for path in files]
    if not tables:
        raise WrongAnswer(f"Expected result files below {output}, found none.")
    return pa.concat_tables(tables)


def _is_private(path: Path, output: Path) -> bool:
    return any(part[0] in "._" for part in path.relative_to(output).parts)


def _read(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        table = pq.ParquetFile(path).read(columns=list(COLUMNS))
    else:
        table = pacsv.read_csv(path, pacsv.ReadOptions(column_names=list(COLUMNS)))
    return table.cast(pa.schema(list(_TYPES.items())))


def _comparable(table: pa.Table, count: int) -> dict[str, np.ndarray]:
    columns = {name: table[name].to_numpy() for name in COLUMNS}
    last = data.last_window_end_us(count)
    order = np.lexsort((columns["key"], columns["window_end"]))
    order = order[columns["window_end"][order] < last]  # later ones hold only the closing row
    return {name: column[order] for name, column in columns.items()}


def _difference(
    output: Path,
    name: str,
    wanted: dict[str, np.ndarray],
    answer: dict[str, np.ndarray],
    at: int | None = None,
) -> str:
    rows = len(wanted["key"]), len(answer["key"])
    if rows[0] != rows[1]:
        return f"{output}: expected {rows[0]} result rows, found {rows[1]}."
    at = int(np.argmax(wanted[name] != answer[name])) if at is None else at
    one, other = ({column: values[at].item() for column, values in side.items()} for side in (wanted, answer))
    return f"{output}: {name} of result row {at} is wrong: expected {one}, found {other}."
