"""Reading one batch ahead of the scan, in a thread: Arrow decodes without holding Python's lock."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Final, TypeVar

_ENOUGH: Final = 1 << 16
"""Rows of a batch after which it pays to have a thread: small inputs are read without one."""

_T = TypeVar("_T")


def read_ahead(batches: Iterator[_T], rows_of: Callable[[_T], int]) -> Generator[_T]:
    """The batches in their order; from the first large one on, the next is read while the caller works on one.

    An error of reading is raised where its batch would be. One batch is in memory besides the caller's.
    """
    batch = next(batches, None)
    while batch is not None and rows_of(batch) < _ENOUGH:
        yield batch
        batch = next(batches, None)
    if batch is None:
        return
    context = copy_context()  # of functions that are registered, which an event time may call
    with ThreadPoolExecutor(1, thread_name_prefix="read") as thread:
        while batch is not None:
            following = thread.submit(lambda: context.run(lambda: next(batches, None)))
            yield batch
            batch = following.result()
