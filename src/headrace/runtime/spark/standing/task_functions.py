"""The scan and the state task of an epoch with their errors as values: a Spark job and standing tasks run the same two.

A task that fails for a reason of the user's or of Headrace (a file that changed, a full disk) would fail again: its error takes
the place of its blobs or its receipt, and the driver raises it with its own type.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.errors import HeadraceError
from headrace.runtime.home.gc_control import freeze_modules
from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.runtime.tasks.levels import run_state
from headrace.runtime.tasks.scan.scan_task import run_scan

_FAILED: Final = b"\xff" * 8
"""Prefix of a blob that is a scan task's error: the length that other blobs begin with is never negative."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A task's error, in place of its receipt."""

    error: HeadraceError


def scan(message: ScanMessage) -> Iterator[tuple[int, bytes]]:
    """The blobs of a scan task, or its error as the blob of every state task."""
    freeze_modules()
    try:
        yield from run_scan(message)
    except HeadraceError as error:
        yield from failed_scan(message, error).items()


def failed_scan(message: ScanMessage, error: HeadraceError) -> dict[int, bytes]:
    """The blobs of a scan task that failed."""
    return dict.fromkeys(range(len(message.owners)), _FAILED + pickle.dumps(error))


def advance(message: StateMessage, blobs: Sequence[bytes]) -> StateReceipt | Failure:
    """The receipt of a state task; or its error, or that of a scan task."""
    freeze_modules()
    failed = next((blob for blob in blobs if blob.startswith(_FAILED)), None)
    if failed is not None:
        return Failure(pickle.loads(failed[len(_FAILED) :]))
    try:
        return run_state(message, blobs)
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
