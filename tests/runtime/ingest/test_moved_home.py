"""A home that was moved, or restored elsewhere from a copy, reads the pushed rows that waited in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

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
