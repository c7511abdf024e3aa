"""Whether the machine is quiet enough to measure on.

A figure that was measured during other work is worth nothing, and does not show that later. So results are kept only when the load
average of the last minute was at most `HIGHEST` before the run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

HIGHEST = 2.0
_LOOK_SECONDS = 5.0


def load() -> float:
    """The load average of the last minute."""
    return os.getloadavg()[0]


def is_quiet(before: float) -> bool:
    """Whether results of a run that began at this load may be kept."""
    return before <= HIGHEST


def load_before(
    patience: float, look: Callable[[], float] = load, rest: Callable[[float], None] = time.sleep
) -> float:
    """The load at which a run begins, waited for up to `patience` seconds: that of a benchmark before it fades in a minute."""
    waited = 0.0
    while not is_quiet(now := look()) and waited < patience:
        rest(_LOOK_SECONDS)
        waited += _LOOK_SECONDS
    return now
