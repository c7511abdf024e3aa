"""A stream of many columns costs its columns once: twice as many take twice the steps, not four times as many."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.schema import BIGINT, Field, Schema

_FEW, _MANY = 200, 800


def _written(path: Path, using: str, names: list[str]) -> None:
    row = dict.fromkeys(names, 1)
    if using == "csv":
        path.write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    elif using == "json":
        path.write_text(json.dumps(row) + "\n")
    else:
        pq.write_table(pa.Table.from_pylist([row]), path)


def _steps(folder: Path, using: str, columns: int) -> Counter[str]:
    """Calls of Python and C functions for one file: made a stream, read, archived, selected and counted."""
    folder.mkdir()
    names = [f"c{number}" for number in range(columns)]
    _written(folder / "rows", using, names)
    header = ", header 'true'" if using == "csv" else ""
    declared = ", ".join(f"{name} BIGINT" for name in names)
    counts: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            counts[frame.f_code.co_name] += 1
        elif event == "c_call":
            counts[getattr(argument, "__name__", "?")] += 1

    with Hub(folder / "home", LocalExecutor(), tasks=1) as hub:
        sys.setprofile(count)
        try:
            hub.execute(
                f"CREATE STREAM s ({declared}) USING {using} OPTIONS (path '{folder}/rows'{header});"
                "CREATE QUERY every AS SELECT * FROM s;"
                "CREATE QUERY last AS SELECT * FROM s [ROWS 3]"
            )
            hub.catch_up()
        finally:
            sys.setprofile(None)
        assert hub.query("every").history().num_columns == columns
    return counts


@pytest.mark.parametrize("using", ["csv", "json", "parquet"])
def test_steps_grow_with_the_columns_and_no_faster(tmp_path: Path, using: str) -> None:
    few, many = _steps(tmp_path / "few", using, _FEW), _steps(tmp_path / "many", using, _MANY)
    assert many.total() < 4.5 * few.total(), (many - few).most_common(10)
    whole_schemas = ("_arrow", "schema_arrow", "to_arrow_schema")
    assert sum(many[name] for name in whole_schemas) <= sum(few[name] for name in whole_schemas)


def test_what_a_schema_derives_is_made_once() -> None:
    schema = Schema((Field("a", BIGINT), Field("B", BIGINT)))
    assert schema.arrow() is schema.arrow()
    assert schema.names is schema.names
    assert schema.find("b") is schema.fields[1]
    assert schema == Schema((Field("a", BIGINT), Field("B", BIGINT)))
    assert hash(schema) == hash(Schema(schema.fields))
