"""MAX_BY and MIN_BY: which row they choose depends on neither its place nor the cut into batches."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr

AT = datetime(2026, 1, 1, tzinfo=UTC)
Rows = tuple[tuple[float | None, float | None], ...]


@pytest.mark.parametrize(
    ("rows", "greatest", "least"),
    [
        (((0.0, 1.0), (-0.0, 1.0), (0.0, 1.0)), "0.0", "0.0"),
        (((5.0, 1.0), (7.0, 1.0), (None, 1.0)), "7.0", "None"),
        (((5.0, -0.0), (7.0, 0.0), (9.0, None)), "7.0", "5.0"),
    ],
    ids=["zeros", "ties", "signs"],
)
def test_equal_rows_have_one_answer_in_any_order_and_cut(
    rows: Rows, greatest: str, least: str, tmp_path: Path
) -> None:
    with hr.open(tmp_path / "home", local=True) as hub:
        names = [f"s{number}" for number in range(2 * len(list(permutations(rows))))]
        for name in names:
            hub.execute(
                f"CREATE STREAM {name} (x DOUBLE, y DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at;"
                f"CREATE QUERY of_{name} AS SELECT MAX_BY(x, y) AS a, MIN_BY(x, y) AS b FROM {name}"
                " [RANGE 1 MINUTE SLIDE 1 MINUTE]"
            )
        ways = list(zip(names, [(order, cut) for order in permutations(rows) for cut in (0, 1)], strict=True))
        for name, (order, cut) in ways:
            hub.push(name, _rows(order[: cut or None]))
        hub.run_once()
        for name, (order, cut) in ways:
            if cut:
                hub.push(name, _rows(order[cut:]))
        hub.run_once(seal=True)
        for name, way in ways:
            (row,) = hub.query(f"of_{name}").history().to_pylist()
            assert (str(row["a"]), str(row["b"])) == (greatest, least), way


def _rows(rows: Rows) -> pa.Table:
    columns = {"x": [x for x, _ in rows], "y": [y for _, y in rows], "at": [AT] * len(rows)}
    return pa.table(
        columns, pa.schema({"x": pa.float64(), "y": pa.float64(), "at": pa.timestamp("us", "UTC")})
    )
