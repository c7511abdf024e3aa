"""Faster imports at the start of a short command: a block that imports without garbage collection, and a first use of Arrow
that does not import pandas.

Cycles are not collected: modules are no garbage. Arrow does not import pandas, which it would with the first array, to recognise
series: it takes as long as numpy and Arrow together. numpy's library for matrices starts no threads, as in Spark's workers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.runtime.home.gc_control import collector_disabled, freeze_modules


@contextmanager
def importing() -> Iterator[None]:
    """A block that imports; what it has loaded is never traversed for garbage."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with collector_disabled(True):
        yield
        freeze_modules()


class _NoPandas:
    """A finder of modules that finds no pandas, and stops the search."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:  # noqa: ARG004
        """Raise `ModuleNotFoundError` for pandas; all else is left to other finders."""
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def leave_pandas_out() -> None:
    """Have Arrow find no pandas when it first looks for it; `import pandas` and `to_pandas` work as ever.

    Not for a process that may run users' functions: Arrow would no longer take their missing values of series for NULL.
    """
    import pyarrow as pa  # noqa: PLC0415 - after Java has started, where one is needed

    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array(())
    finally:
        sys.meta_path.remove(_NoPandas)
