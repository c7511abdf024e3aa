"""The names by which numpy's kernels for wide registers are switched off on this machine, for `make narrow`."""

from __future__ import annotations

import sys

from numpy._core import _multiarray_umath as core


def names() -> list[str]:
    """Features that numpy has kernels for, that this machine has, and that are not in its baseline."""
    return [name for name in core.__cpu_dispatch__ if core.__cpu_features__.get(name)]


if __name__ == "__main__":
    sys.stdout.write(" ".join(names()))
