"""The start of a short command: what is put off, and that it is there afterwards."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from headrace.runtime.home.quick_start import importing

WITHOUT_PANDAS = """
import sys
import numpy as np, pyarrow as pa
from headrace.runtime.home.quick_start import leave_pandas_out

leave_pandas_out()
assert pa.array(np.arange(3)).to_numpy().tolist() == [0, 1, 2]
assert pa.array(["a", None]).to_numpy(zero_copy_only=False).tolist() == ["a", None]
assert "pandas" not in sys.modules
import pandas as pd
assert pa.array([1, 2]).to_pandas().equals(pd.Series([1, 2]))
assert pa.Table.from_pandas(pd.DataFrame({"a": [1.0, None]})).column("a").null_count == 1
print("both")
"""


def test_arrow_works_without_pandas_and_has_it_again_once_it_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_PANDAS], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("both\n", 0), done.stderr


@pytest.mark.parametrize("enabled", [True, False])
def test_cycles_are_not_collected_while_modules_load(enabled: bool) -> None:
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with importing():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
        assert gc.get_freeze_count()
    finally:
        (gc.enable if was else gc.disable)()
