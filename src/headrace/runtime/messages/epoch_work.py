"""The work of an epoch before it is cut into tasks: its kind (arrived rows, a backfill from the archive or from state, or
only a later punctuation), the splits of its input, and the operators that take part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from headrace.dataclass import dataclass
from headrace.runtime.messages.repair_ledger import RepairLedger
from headrace.runtime.messages.task_messages import Participants, Split
from headrace.time import Instant

OF_A_TASK: Final = 100_000
"""Rows that are enough for a scan task of their own."""
NOBODY: Final = Participants()
REPAIR: Final = "repair"
"""The kind of epochs that read the archive for answers that were given from samples."""
BACKFILLS: Final = ("replay", "fill", REPAIR)
"""The kinds of epochs that read the archive or the state, not the sources."""


@dataclass(frozen=True, slots=True)
class EpochWork:
    """The input of an epoch before it is cut into tasks.

    `splits` have a weight each; `operators` take part; `punctuations` fixes theirs (backfill); `min_punctuations` are those of
    streams (idle, sealed); `taken` has the ordinals consumed, by stream; `replayed` the archive entries that operators have
    read afterwards, `slices` those of the next entry; `relations` the files of the versions that archived rows were read with. `level` is the round of the epoch,
    which advances the streams of that level, `moved` those whose readers are visited in any case. `repaired` has the ledgers of operators
    whose answers it repairs, as they are afterwards.
    """

    kind: str
    splits: tuple[tuple[Split, int], ...] = ()
    operators: Participants = NOBODY
    punctuations: Mapping[str, Instant] = field(default_factory=dict)
    min_punctuations: Mapping[str, Instant] = field(default_factory=dict)
    taken: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    replayed: Mapping[str, int] = field(default_factory=dict)
    slices: Mapping[str, int] = field(default_factory=dict)
    final: bool = False
    relations: Mapping[str, str] = field(default_factory=dict)
    isolated: frozenset[str] = frozenset()
    """Operators that share with no other in this epoch and take rows in small batches, after a failure together with others."""
    level: int = 0
    moved: tuple[str, ...] = ()
    repaired: Mapping[str, RepairLedger] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        """True of an epoch that reads unread results of all levels while streams end."""
        return self.level > 0

    @property
    def is_replay(self) -> bool:
        """True when the archive or the state is read, not the sources."""
        return self.kind in BACKFILLS

    def tasks(self, cores: int, dear_rows: int | None = None) -> int:
        """The most scan tasks that pay: two a core for much input, one for little; `dear_rows` are enough for one where rows take long."""
        weight = sum(weight for _, weight in self.splits)
        return max(1, min(2 * cores, weight // enough_rows(dear_rows), len(self.splits)))


def enough_rows(dear_rows: int | None) -> int:
    """The rows that are enough for a scan task, where `dear_rows` are if rows take long."""
    return min(OF_A_TASK, dear_rows or OF_A_TASK)
