"""Faster imports at the start of a short command: a block that imports without garbage collection, and a first use of Arrow
that imports neither pandas nor masked arrays.

Cycles are not collected: modules are no garbage. Arrow does not import pandas, which it would with the first array, to recognise
series: it takes as long as numpy and Arrow together; nor masked arrays, to recognise these. It makes no help texts of the options of its
functions, which takes half of the time of their import. numpy gets no help texts either, a sixth of its import. Its library for matrices starts no threads, as in Spark's workers.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from headrace.runtime.home.gc_control import collector_disabled

_HELP: Final = {
    "pyarrow.vendored.docscrape": {"NumpyDocString": lambda _: {"Parameters": ()}},
    "numpy._core._add_newdocs": {},
    "numpy._core._add_newdocs_scalars": {},
}
"""Modules that only make help texts, and what others take from them: Arrow reads those of its options, numpy adds those of what is written in C."""
_ONE_THREAD: Final = "OPENBLAS_NUM_THREADS"


@contextmanager
def importing() -> Iterator[None]:
    """A block that imports; what it has loaded is never traversed for garbage."""
    if "numpy" not in sys.modules:
        os.environ.setdefault(_ONE_THREAD, "1")
    with collector_disabled(True), _no_help_texts():
        yield
        gc.freeze()


def matrices_have_one_thread() -> bool:
    """Whether numpy's library for matrices was loaded with one thread."""
    return os.environ.get(_ONE_THREAD) == "1"


@contextmanager
def _no_help_texts() -> Iterator[None]:
    """A block in which numpy and Arrow, if they are imported there, have no help texts; their functions and signatures are complete."""
    finder, unknown = _NoHelpTexts(), _HELP.keys() - sys.modules.keys()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in unknown:  # another reader of help texts imports the real module
            sys.modules.pop(name, None)


class _NoHelpTexts:
    """A finder and loader of modules in place of those that make help texts."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        """The module in place of one that makes help texts; all else is left to other finders."""
        return ModuleSpec(name, self) if name in _HELP else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """As usual."""

    def exec_module(self, module: ModuleType) -> None:
        """Its functions, if it has any."""
        vars(module).update(_HELP[module.__name__])


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


def leave_masked_arrays_out() -> None:
    """Have Arrow and numpy import no masked arrays when they look whether an array is one; code that uses `numpy.ma` has it as ever."""
    import numpy as np  # noqa: PLC0415 - as above

    if "numpy.ma" not in sys.modules:
        np.ma = _MaskedArrays()  # type: ignore[assignment]


class _MaskedArrays:
    """`numpy.ma` until it is used: the import takes this object's place."""

    def is_masked(self, value: object) -> bool:
        """Whether values of an array are masked."""
        return "numpy.ma" in sys.modules and bool(_masked("is_masked")(value))

    def __getattr__(self, name: str) -> Any:
        return _MaskedArray() if name == "MaskedArray" and "numpy.ma" not in sys.modules else _masked(name)


class _MaskedArray:
    """The class of masked arrays while there can be none: no value is one before its module is imported."""

    def __instancecheck__(self, value: object) -> bool:
        return "numpy.ma" in sys.modules and isinstance(value, _masked("MaskedArray"))

    def __call__(self, *values: Any, **options: Any) -> Any:
        return _masked("MaskedArray")(*values, **options)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (_masked("MaskedArray"),)

    def __getattr__(self, name: str) -> Any:
        return getattr(_masked("MaskedArray"), name)


def _masked(name: str) -> Any:
    return getattr(import_module("numpy.ma"), name)
