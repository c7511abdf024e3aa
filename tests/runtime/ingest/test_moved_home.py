"""A home that was moved, or restored elsewhere from a copy, reads the pushed rows that waited in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import CorruptStore
from headrace.runtime.hub.opening import open_hub

ROWS = 10_000
"""More than a record holds: they are in a file of their own."""


def test_rows_that_waited_are_read_after_a_move(tmp_path: Path) -> None:
    at = pa.array(np.arange(ROWS)).cast(pa.timestamp("us", tz="UTC"))
    with open_hub(tmp_path / "old", local=True) as hub:
        hub.execute("CREATE STREAM s (a BIGINT, t TIMESTAMP) USING push TIMESTAMP BY t")
        hub.execute("CREATE QUERY q AS SELECT a FROM s")
        hub.push("s", pa.table({"a": np.arange(ROWS), "t": at}))
    (tmp_path / "old").rename(tmp_path / "new")
    with open_hub(tmp_path / "new", local=True) as hub:
        hub.loop.drain()
        assert hub.query("q").history().column("a").to_pylist() == list(range(ROWS))


@pytest.mark.parametrize("whole", [0.0, 0.6])
def test_pushed_rows_that_a_disk_has_lost_are_an_error_and_no_reject(tmp_path: Path, whole: float) -> None:
    """Blocks of zeros are a valid end of an Arrow stream; the rows were acknowledged, so none may be left out."""
    at = pa.array(np.arange(40 * ROWS)).cast(pa.timestamp("us", tz="UTC"))
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM s (a BIGINT, t TIMESTAMP) USING push TIMESTAMP BY t")
        hub.execute("CREATE QUERY q AS SELECT a FROM s")
        hub.push("s", pa.table({"a": np.arange(40 * ROWS), "t": at}))
    (file,) = (tmp_path / "home" / "segments" / "s").iterdir()
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data[: int(whole * len(data))].ljust(len(data), b"\0"))
    with open_hub(tmp_path / "home", local=True) as hub:
        with pytest.raises(CorruptStore, match=file.name):
            hub.loop.drain()
        assert hub.query("q").history().num_rows == 0
        file.unlink()
        file.write_bytes(data)
        hub.loop.drain()
        assert hub.query("q").history().num_rows == 40 * ROWS
