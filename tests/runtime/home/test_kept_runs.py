"""State runs that are kept in memory when they are written: small ones alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import StoreError
from headrace.runtime.home.run_cache import bytes_by_state, keep_state_run, known_sizes, open_run
from headrace.store.files.filesystem import LocalStore


@pytest.mark.parametrize(("rows", "is_kept"), [(100, True), (1 << 16, False)])
def test_a_small_run_in_several_pieces_is_kept_as_one(tmp_path: Path, rows: int, is_kept: bool) -> None:
    store, table = LocalStore(tmp_path), pa.concat_tables([pa.table({"a": np.arange(rows)})] * 3)
    sections = {"q/rows": table}
    keep_state_run(store, "run", sections, bytes_by_state(sections))
    assert known_sizes(store, "run") == {"q": table.nbytes}
    if not is_kept:
        with pytest.raises(StoreError, match="there is no file 'run'"):
            open_run(store, "run")
        return
    kept = open_run(store, "run")["q/rows"]
    assert kept == table
    assert kept.column("a").num_chunks == 1
