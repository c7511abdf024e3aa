"""Pushed rows: what is accepted, what is refused with which error, and that they are read as they were pushed."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.ingest_record import IngestRecord, SourceChanged
from headrace.connectors.sources.segment_files import as_rows, record_with_rows, write_table_segment
from headrace.connectors.sources.source_reader import read
from headrace.errors import AlreadyPublished, UserError
from headrace.schema import DATE, INT, TIMESTAMP, Field, Schema
from tests.connectors.building import ARRIVAL, SCHEMA, everything

PUSH = StreamDefinition("s", SCHEMA, "push", time="at")
AT = datetime(2023, 1, 1, tzinfo=UTC)
ROWS = [{"k": 1, "v": 1.5, "s": "x", "at": AT}, {"k": None, "v": None, "s": None, "at": AT}]


def write(stream: StreamDefinition, rows: object, root: Path) -> IngestRecord:
    """Rows in any form, as a segment of a home."""
    return write_table_segment(stream, as_rows(stream, rows), root / "segments", "a", ARRIVAL, root=root)


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        [{"K": 1, "v": 1.5, "s": "x", "at": "2023-01-01"}, {"AT": AT.replace(tzinfo=None)}],
        pa.Table.from_pylist(ROWS, schema=SCHEMA.arrow()),
        pa.Table.from_pylist(ROWS, schema=SCHEMA.arrow()).to_batches()[0],
        pa.Table.from_pylist(ROWS).select(["at", "s", "v", "k"]),
        pd.DataFrame(ROWS),
    ],
    ids=["dicts", "dicts with gaps", "table", "batch", "another order", "pandas"],
)
def test_rows_come_back_as_they_were_handed_in(tmp_path: Path, rows: object) -> None:
    record = write(PUSH, rows, tmp_path)
    without_file = record_with_rows(PUSH, as_rows(PUSH, rows), "b", ARRIVAL)
    assert without_file is not None
    for one in (record, without_file, IngestRecord.from_json(without_file.to_json())):
        assert one.rows_hint == 2
        assert everything(PUSH, [one], tmp_path) == (ROWS, [])


def test_many_rows_in_many_batches_come_back_in_order(tmp_path: Path) -> None:
    count = 600_000
    schema = Schema((Field("k", INT),))
    stream = StreamDefinition("s", schema, "push")
    record = write(stream, pa.table({"k": np.arange(count, dtype=np.int32)}), tmp_path)
    batches = list(read(record, stream, root=str(tmp_path)))
    assert np.concatenate([batch.table.column("k").to_numpy() for batch in batches]).tolist() == list(
        range(count)
    )
    assert np.concatenate([batch.rows for batch in batches]).tolist() == list(range(count))
    assert {int(at) for batch in batches for at in np.unique(batch.at)} == {ARRIVAL}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"k": "one", "at": AT}], "column k has to be INT: "),
        ([{"k": 1 << 40, "at": AT}], "column k has to be INT: "),
        ([{"k": 1.0, "at": AT}, {"k": 1.5, "at": AT}], "column k has to be INT: 1.5 is no whole number"),
        ([{"k": float("nan"), "at": AT}], "column k has to be INT: nan is no whole number"),
        ([{"k": 1, "at": 1.5}], "column at has to be TIMESTAMP: 1.5 is no whole number"),
        ([{"k": 1, "att": AT}], "stream 's' has no column 'att'\n  Did you mean 'at'?"),
        ([1], "row 0 for stream 's' is int, not a dict"),
        ({"k": 1}, "stream 's' takes rows, not dict"),
        ("k", "stream 's' takes rows, not str"),
        ([{"k": 1, "at": "soon"}], "column at has to be TIMESTAMP: "),
        (pa.table({"k": [1]}), "column v, s, at is missing"),
        (pa.table({"k": [1.5], "v": [1.0], "s": ["x"], "at": [AT]}), "column k is double, expected INT"),
        (pa.table({"k": [1 << 40], "v": [1.0], "s": ["x"], "at": [AT]}), "row 0: column k: 1099511627776 does not fit INT"),
        (pd.DataFrame({"k": [1.5], "v": [1.0], "s": ["x"], "at": [AT]}), "column k has to be INT: "),
        (pd.DataFrame({"k": ["1"], "v": [1.0], "s": ["x"], "at": [AT]}), "column k has to be INT: text, such as '1'"),
        (pd.DataFrame({"k": [1]}), "column v, s, at is missing"),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit_are_refused_whole(tmp_path: Path, rows: object, message: str) -> None:
    with pytest.raises(UserError) as refused:
        write(PUSH, rows, tmp_path)
    assert message in str(refused.value)
    assert not list(tmp_path.rglob("*.arrow"))


def test_the_first_moment_and_day_of_1970_are_read_from_text_like_any_other(tmp_path: Path) -> None:
    stream = StreamDefinition("s", Schema((Field("d", DATE), Field("at", TIMESTAMP))), "push", time="at")
    rows = [{"d": "1970-01-01", "at": "1970-01-01T00:00:00Z"}, {"d": "1970-01-02", "at": "1970-01-01"}]
    record = write(stream, rows, tmp_path)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    days = [{"d": date(1970, 1, 1), "at": epoch}, {"d": date(1970, 1, 2), "at": epoch}]
    assert everything(stream, [record], tmp_path) == (days, [])


def test_pandas_null_integers_and_dates_fit(tmp_path: Path) -> None:
    schema = Schema((Field("k", INT), Field("d", DATE)))
    stream = StreamDefinition("s", schema, "push")
    frame = pd.DataFrame({"k": [1, None], "d": [date(2023, 1, 1), None]})
    record = write(stream, frame, tmp_path)
    assert everything(stream, [record], tmp_path)[0] == [
        {"k": 1, "d": date(2023, 1, 1)},
        {"k": None, "d": None},
    ]


def test_a_segment_is_never_rewritten(tmp_path: Path) -> None:
    write(PUSH, ROWS, tmp_path)
    with pytest.raises(AlreadyPublished, match=r"a\.arrow"):
        write(PUSH, ROWS, tmp_path)


def test_a_segment_named_within_a_home_is_found_when_the_home_has_moved(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    record = write(PUSH, ROWS, old)
    assert record.uri == "segments/a.arrow"
    old.rename(new)
    assert sum(batch.table.num_rows for batch in read(record, PUSH, root=str(new))) == 2
    with pytest.raises(SourceChanged, match=r"expected \d+ bytes, found that it is gone"):
        list(read(record, PUSH, root=str(old)))
