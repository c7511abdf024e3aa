"""The newest delays by epoch, of which the largest is known without reading all of them."""

from __future__ import annotations

from collections import deque
from dataclasses import field

from headrace.dataclass import dataclass
from headrace.time import Duration


@dataclass(slots=True)
class NewestDelays:
    """The `pairs` of the newest epochs and their largest delay. An epoch is added, and the oldest one left out, in constant time on average."""

    pairs: int = 0
    _epochs: deque[tuple[int, Duration]] = field(default_factory=deque)
    """The oldest first: how many pairs, and their largest delay."""
    _descending: deque[Duration] = field(default_factory=deque)
    """The delays of which no later one is larger."""

    @property
    def epochs(self) -> int:
        """How many epochs there are."""
        return len(self._epochs)

    @property
    def oldest(self) -> int:
        """The pairs of the oldest epoch."""
        return self._epochs[0][0]

    @property
    def largest(self) -> Duration:
        """The largest delay; 0 without one."""
        return self._descending[0] if self._descending else 0

    def add(self, pairs: int, delay: Duration) -> None:
        """Add an epoch with its largest delay."""
        self.pairs += pairs
        self._epochs.append((pairs, delay))
        while self._descending and self._descending[-1] < delay:
            self._descending.pop()
        self._descending.append(delay)

    def leave_oldest(self) -> None:
        """Leave out the oldest epoch."""
        pairs, delay = self._epochs.popleft()
        self.pairs -= pairs
        if self._descending[0] == delay:
            self._descending.popleft()
