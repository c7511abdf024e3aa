"""Event times of Parquet that are read only if they are asked for: the same rows, rejects and times as if they were read at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.formats import parquet_reader
from headrace.connectors.records.ingest_record import IngestRecord, SourceBatch, SourceChanged
from headrace.connectors.sources.listing import list_new
from headrace.connectors.sources.source_reader import read
from headrace.schema import INT, TIMESTAMP, Field, Schema
from tests.connectors.building import ARRIVAL, stream

MINUTE = 60_000_000
START = 1_600_000_020_000_000
"""A full minute."""
SCHEMA = Schema((Field("at", TIMESTAMP), Field("k", INT)))


def apart(low: int, high: int) -> bool:
    """Whether two instants are in different minutes."""
    return low // MINUTE != high // MINUTE


def written(folder: Path, groups: list[list[int | None]], unit: str = "us", **options: Any) -> Path:
    """A file with these row groups of event times; `k` counts the rows, and is too large for the schema in every seventh."""
    kind, path, first = pa.timestamp(unit, "UTC"), folder / "a.parquet", 0
    schema = pa.schema({"at": kind, "k": pa.int64()})
    with pq.ParquetWriter(path, schema, **options) as writer:
        for times in groups:
            numbers = [row if row % 7 != 5 else 1 << 40 for row in range(first, first + len(times))]
            first += len(times)
            scale = {"ms": 1000, "us": 1, "ns": 1}[unit]
            scaled = [None if at is None else at // scale * (1000 if unit == "ns" else 1) for at in times]
            writer.write_table(pa.table([pa.array(scaled, kind), pa.array(numbers)], schema=schema))
    return path


def listed(folder: Path) -> tuple[StreamDefinition, IngestRecord]:
    definition = stream(folder, "parquet", SCHEMA)
    (record,) = list_new(definition, (), ARRIVAL)
    return definition, record


def both(folder: Path) -> tuple[list[SourceBatch], list[SourceBatch]]:
    """The batches with event times read at once, and with those of rows within a minute put off."""
    definition, record = listed(folder)
    return list(read(record, definition, ["k"])), list(read(record, definition, ["k"], reads_times=apart))


def everything(batches: list[SourceBatch]) -> list[list[Any]]:
    numbers = [row for batch in batches for row in batch.rows.tolist()]
    times = [at for batch in batches for at in batch.at.tolist()]
    keys = [key for batch in batches for key in batch.table.column("k").to_pylist()]
    return [numbers, times, keys, [row for batch in batches for row in batch.rejects.to_pylist()]]


def is_put_off(batch: SourceBatch) -> bool:
    return batch.times._read is not None


TIMES = st.integers(START - MINUTE, START + 2 * MINUTE).map(lambda at: at // 1000 * 1000)
WITHIN = st.integers(START, START + MINUTE - 1).map(lambda at: at // 1000 * 1000)
ODD = st.sampled_from([None, ARRIVAL + 2 * 86_400_000_000, -(1 << 60)])
GROUPS = st.lists(
    st.one_of(st.lists(WITHIN, min_size=1, max_size=9), st.lists(st.one_of(TIMES, WITHIN, ODD), max_size=9)),
    max_size=6,
)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of two rows are read by themselves."""
    monkeypatch.setattr(parquet_reader, "_ALONE", 2)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    groups=GROUPS,
    unit=st.sampled_from(["us", "ms"]),
    most=st.integers(1, 12),
    alone=st.sampled_from([1, 2, 5]),
)
def test_times_put_off_are_those_that_are_read(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[int | None]], unit: str, most: int, alone: int
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    written(folder, groups, unit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_reader, "BATCH", most)
        patch.setattr(parquet_reader, "_ALONE", alone)
        at_once, put_off = both(folder)
    for batch in put_off:
        if batch.times.rows:
            low, high = batch.times.bounds
            assert low <= batch.at.min() <= batch.at.max() <= high
    assert everything(at_once) == everything(put_off)
    assert [len(batch.rows) for batch in at_once] == [len(batch.rows) for batch in put_off]


def test_only_row_groups_that_are_enough_by_their_bounds_are_put_off(tmp_path: Path) -> None:
    within, across = [START, START + MINUTE - 1], [START - 1, START]
    written(tmp_path, [within, across, across, within, [START]])
    _, batches = both(tmp_path)
    assert [(batch.times.rows, is_put_off(batch)) for batch in batches] == [
        (2, True),
        (2, False),
        (1, False),  # the other one has a key that does not fit
        (2, True),
        (1, True),
    ]
    assert batches[0].times.bounds == (START, START + MINUTE - 1)


@pytest.mark.parametrize(
    ("times", "options"),
    [
        ([START, None], {}),
        ([START, ARRIVAL + 2 * 86_400_000_000], {}),
        ([START, START + 1], {"write_statistics": False}),
        ([START, START + 1], {"unit": "ns"}),
        ([START, START + 1], {"unit": "ns", "use_deprecated_int96_timestamps": True}),
    ],
)
def test_without_usable_bounds_times_are_read(
    tmp_path: Path, times: list[int | None], options: dict[str, Any]
) -> None:
    written(tmp_path, [times], **options)
    at_once, put_off = both(tmp_path)
    assert not any(map(is_put_off, put_off))
    assert everything(at_once) == everything(put_off)


def test_times_are_read_where_a_row_is_refused(tmp_path: Path) -> None:
    """The text of a refused row has all columns."""
    written(tmp_path, [[START] * 5, [START, START + 1]])
    at_once, (first, second) = both(tmp_path)
    assert (is_put_off(first), is_put_off(second)) == (True, False)
    assert everything(at_once) == everything([first, second])


def test_a_column_that_is_read_for_itself_is_not_put_off(tmp_path: Path) -> None:
    written(tmp_path, [[START, START + 1]])
    definition, record = listed(tmp_path)
    (batch,) = read(record, definition, ["at", "k"], reads_times=apart)
    assert not is_put_off(batch)
    assert batch.table.column("at").cast(pa.int64()).to_pylist() == batch.at.tolist() == [START, START + 1]
    (batch,) = read(record, definition, [], reads_times=apart)
    assert batch.at.tolist() == [START, START + 1]


def test_the_pages_of_times_put_off_are_not_read(tmp_path: Path) -> None:
    """Their bytes are overwritten: a reader of them gets no rows."""
    times: list[int | None] = [*range(START, START + 5)]
    path = written(tmp_path, [times], use_dictionary=False, compression="none")
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    content = bytearray(path.read_bytes())
    first = column.data_page_offset
    content[first : first + 30] = b"\xff" * 30
    path.write_bytes(bytes(content))
    at_once, put_off = both(tmp_path)
    assert [batch.table.num_rows for batch in at_once] == [0]
    assert [(batch.table.num_rows, batch.times.bounds) for batch in put_off] == [(5, (START, START + 4))]


def test_times_of_a_file_that_is_gone_are_no_longer_read(tmp_path: Path) -> None:
    path = written(tmp_path, [[START]])
    _, (batch,) = both(tmp_path)
    path.unlink()
    with pytest.raises(SourceChanged, match="it is gone"):
        np.array(batch.at)
