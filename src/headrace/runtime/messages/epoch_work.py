"""What the next epoch is: the past for operators that are behind, else what has arrived, else time alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.runtime.messages.task_messages import Split
from headrace.time import Instant


@dataclass(frozen=True, slots=True)
class EpochWork:
    """An epoch's orders before they are cut into tasks.

    `pieces` with their weights; `operators` that take part; `now` fixes their punctuation (replay); `floors` are the least
    punctuations of streams (idle, sealed); `taken` the ordinals consumed, by stream; `replayed` where operators stand after;
    `relations` the files of the versions that the past was read with.
    """

    kind: str
    splits: tuple[tuple[Split, int], ...] = ()
    operators: tuple[str, ...] = ()
    punctuations: Mapping[str, Instant] = field(default_factory=dict)
    min_punctuations: Mapping[str, Instant] = field(default_factory=dict)
    taken: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    replayed: Mapping[str, int] = field(default_factory=dict)
    final: bool = False
    relations: Mapping[str, str] = field(default_factory=dict)
    separate: frozenset[str] = frozenset()
    """Operators that share with none in this epoch, and take rows in small batches: one of them has failed."""

    @property
    def is_replay(self) -> bool:
        """True when the archive or the state is read, not the sources."""
        return self.kind in ("replay", "fill")

    def tasks(self, cores: int) -> int:
        """About two scan tasks a core for much input, one for little: each task costs a fixed 20 ms."""
        weight = sum(weight for _, weight in self.splits)
        return max(1, min(2 * cores, weight // 100_000, len(self.splits)))
