"""The compiled kernels as a library of this process: loaded at first use, None where it was not built."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ctypes

FILE: Final = Path(__file__).with_name("kernels.bin")


@cache
def library() -> ctypes.CDLL | None:
    """The library, or None: then the numpy forms are used, which are several times slower.

    A checkout that is imported without being installed has none. Raises `OSError` if the file is there and cannot be
    loaded.
    """
    if not FILE.exists():
        return None
    from ctypes import CDLL  # noqa: PLC0415 - with the first batch, not with a short command

    return CDLL(str(FILE))


@cache
def widest() -> int:
    """The widest instruction set that this processor has: 0 any, 1 with AVX2, 2 with AVX-512 and VPOPCNTDQ."""
    loaded = library()
    return 0 if loaded is None else int(loaded.headrace_widest())
