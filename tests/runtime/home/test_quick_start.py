"""The start of a short command: what is put off, and that it is there afterwards."""

from __future__ import annotations

import gc
import os
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


WITHOUT_MASKED_ARRAYS = """
import sys
import numpy as np, pyarrow as pa
from headrace.runtime.home.quick_start import leave_masked_arrays_out, leave_pandas_out

leave_pandas_out()
leave_masked_arrays_out()
put_off, known = np.ma, np.ma.MaskedArray
assert pa.array(np.arange(3), mask=np.array([True, False, False])).to_pylist() == [None, 1, 2]
assert np.unique(np.array([2, 1, 2])).tolist() == [1, 2]
assert not isinstance(np.arange(3), known) and not put_off.is_masked(np.arange(3))
assert "numpy.ma" not in sys.modules
{use}
masked = np.ma.masked_array([1, 2], mask=[True, False])
assert "numpy.ma" in sys.modules and np.ma is sys.modules["numpy.ma"]
assert pa.array(masked).to_pylist() == [None, 2]
assert isinstance(masked, known) and isinstance(masked, put_off.MaskedArray)
assert put_off.is_masked(masked) and not put_off.is_masked(np.arange(3)) and not isinstance(np.arange(3), known)
leave_masked_arrays_out()
assert np.ma is sys.modules["numpy.ma"]
print("both")
"""

WITHOUT_HELP_TEXTS = """
import sys
from headrace.runtime.home.quick_start import importing

before = list(sys.meta_path)
with importing():
    import pyarrow.compute as pc
assert sys.meta_path == before
assert pc.sum([1, 2], min_count=3).as_py() is None
assert pc.round([1.25], ndigits=1, round_mode="half_up").to_pylist() == [1.3]
assert "pydoc" not in sys.modules
import inspect
assert "skip_nulls" in inspect.signature(pc.sum).parameters and pc.sum.__doc__.startswith("Compute the sum")
from pyarrow.vendored.docscrape import NumpyDocString
text = NumpyDocString(pc.SumOptions.__doc__ if hasattr(pc, "SumOptions") else pc.ScalarAggregateOptions.__doc__)
assert [item.name for item in text["Parameters"]] == ["skip_nulls", "min_count"]
print("both")
"""


NUMPY_WITHOUT_HELP_TEXTS = """
import sys
from headrace.runtime.home.quick_start import importing, matrices_have_one_thread

with importing():
    import numpy as np
assert np.array.__doc__ is None and np.ndarray.sum.__doc__ is None
assert np.unique.__doc__ and np.add.__doc__
assert np.array([[1, 2], [3, 4]]).sum(axis=0).tolist() == [4, 6]
assert np.ma.masked_array([1, 2], mask=[True, False]).sum() == 2
import numpy.polynomial, numpy.random, pandas
assert pandas.Series([1.5]).sum() == 1.5
import numpy._core._add_newdocs, numpy._core._add_newdocs_scalars
assert np.array.__doc__ and np.ndarray.sum.__doc__ and "64" in np.int64.__doc__
from threadpoolctl import threadpool_info
assert matrices_have_one_thread() and [pool["num_threads"] for pool in threadpool_info()] == [1]
print("both")
"""

MATRICES_WITH_THREADS = """
import os, numpy
os.environ.pop("OPENBLAS_NUM_THREADS", None)
from headrace.runtime.home.quick_start import importing, matrices_have_one_thread

with importing():
    pass
assert not matrices_have_one_thread()
print("both")
"""


@pytest.mark.parametrize("program", [NUMPY_WITHOUT_HELP_TEXTS, MATRICES_WITH_THREADS])
def test_numpy_is_complete_without_help_texts_and_has_one_thread_if_it_is_loaded_in_the_block(
    program,
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.returncode) == ("both\n", 0), done.stderr


@pytest.mark.parametrize(
    "use",
    [
        "import numpy.ma",
        "assert known([1], mask=[True]).mask.all()",
        "class Own(known): pass\nassert issubclass(Own, np.ma.MaskedArray)",
        "assert known.__name__ == 'MaskedArray'",
        "assert put_off.nomask is np.ma.nomask",
    ],
)
def test_masked_arrays_are_imported_when_they_are_used(use: str) -> None:
    program = WITHOUT_MASKED_ARRAYS.replace("{use}", use)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("both\n", 0), done.stderr


def test_functions_of_arrow_are_complete_without_help_texts_which_others_can_read() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_HELP_TEXTS], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("both\n", 0), done.stderr


def test_arrow_works_without_pandas_and_has_it_again_once_it_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_PANDAS], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("both\n", 0), done.stderr


@pytest.mark.parametrize("enabled", [True, False])
def test_cycles_are_not_collected_while_modules_load(enabled: bool) -> None:
    was = gc.isenabled()
    gc.unfreeze()
    (gc.enable if enabled else gc.disable)()
    try:
        with importing():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
        assert gc.get_freeze_count()
    finally:
        (gc.enable if was else gc.disable)()
