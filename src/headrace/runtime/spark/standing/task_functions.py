"""The scan and the state task of an epoch with their errors as values: a Spark job and standing tasks run the same two.

A task that fails for a reason of the user's or of Headrace (a file that changed, a full disk) would fail again: its error takes
the place of its blobs or its receipt, and the driver raises it with its own type.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from headrace.dataclass import dataclass
from headrace.errors import HeadraceError
from headrace.runtime.home.gc_control import exclude_survivors_of_tasks
from headrace.runtime.messages.exchange_blob import ScanBlob
from headrace.runtime.messages.exchange_files import received, sent
from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.runtime.tasks.file_writes import AT_ONCE, FileWrites
from headrace.runtime.tasks.levels import Finished, run_states
from headrace.runtime.tasks.scan.scan_task import scan_blobs

_FAILED: Final = b"\xff" * 8
"""Prefix of a blob that is a scan task's error: the length that other blobs begin with is never negative."""

Blob: TypeAlias = ScanBlob | bytes
"""A blob as its scan task has made it, or packed; an error is packed."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A task's error, in place of its receipt."""

    error: HeadraceError


def scan(message: ScanMessage, writes: FileWrites = AT_ONCE) -> Iterator[tuple[int, Blob]]:
    """The blobs of a scan task by state task, or its error as the blob of each."""
    exclude_survivors_of_tasks()
    try:
        yield from scan_blobs(message, writes)
    except HeadraceError as error:
        yield from failed_scan(message, error).items()


def packed(blob: Blob, folder: Path | None = None) -> bytes:
    """The bytes of a blob that goes to another process; a large one is in a file of `folder`, if that is given. Raises `OSError`."""
    return sent(blob, folder) if isinstance(blob, ScanBlob) else blob


def failed_scan(message: ScanMessage, error: HeadraceError) -> dict[int, bytes]:
    """The blobs of a scan task that failed."""
    return dict.fromkeys(range(len(message.owners)), _FAILED + pickle.dumps(error))


def advance(message: StateMessage, blobs: Sequence[Blob]) -> StateReceipt | Failure:
    """The receipt of one state task; or its error, or that of a scan task."""
    finished = advanced(message, blobs)
    return finished if isinstance(finished, Failure) else finished.receipts[0]


def advanced(
    message: StateMessage, blobs: Sequence[Blob], writes: FileWrites = AT_ONCE
) -> Finished | Failure:
    """One state task with its receipt; or its error, or that of a scan task."""
    exclude_survivors_of_tasks()
    for blob in blobs:
        if isinstance(blob, bytes) and blob.startswith(_FAILED):
            return Failure(pickle.loads(blob[len(_FAILED) :]))
    try:
        own = [received(blob) if isinstance(blob, bytes) else blob for blob in blobs]
        return run_states([message], {message.task: own}, writes)
    except HeadraceError as error:
        return Failure(error)


def without_failures(ended: Sequence[StateReceipt | Failure]) -> list[StateReceipt]:
    """The receipts of an epoch's state tasks. Raises the error of one that failed."""
    receipts = []
    for receipt in ended:
        if isinstance(receipt, Failure):
            raise receipt.error
        receipts.append(receipt)
    return receipts
