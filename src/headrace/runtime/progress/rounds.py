"""An epoch that runs: its rounds so far, and the manifest that they lead to. Nothing of it counts before it is published."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.task_messages import StateReceipt
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import ListFiles
from headrace.time import Instant


class LeftOut(Exception):
    """Operators failed above the first level: the epoch runs again without them."""

    def __init__(self, operators: Collection[str]) -> None:
        super().__init__(", ".join(operators))
        self.operators = operators


@dataclass(slots=True)
class Epoch:
    """The work of an epoch after the manifest `began`, and its receipts; `execution` is the last that counts.

    `backlog` are the operators that emit in epochs of their own, `named` those that took part with progress of their own.
    """

    began: Manifest
    work: EpochWork
    execution: str
    files: ListFiles
    manifest: Manifest = field(init=False)
    receipts: list[StateReceipt] = field(default_factory=list)
    named: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.manifest = self.began

    @property
    def backlog(self) -> Mapping[str, Instant]:
        """Operators that were to stop at an instant from the start."""
        return self.work.punctuations if self.work.operators.followers else {}

    def take(
        self, work: EpochWork, receipts: Sequence[StateReceipt], execution: str, manifest: Manifest
    ) -> None:
        """Take in a round: its work as it was done, and the manifest after it."""
        if not work.level:
            self.work = work
        self.receipts += receipts
        self.named |= work.operators.named
        self.execution, self.manifest = execution, manifest
