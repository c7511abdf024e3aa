"""Which operators know from their state what the last window of each partition answered?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import pyarrow as pa

from headrace.operators.operator import Operator, Sections


@runtime_checkable
class TellsLast(Operator, Protocol):
    """An operator whose windows follow each other per partition: INVOKE returns the last of each."""

    def latest(self, runs: Sequence[Sections]) -> pa.Table | None:
        """The last window of each partition, from state alone; None when no window has closed."""
        ...
