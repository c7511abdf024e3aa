"""Work on many items in a few threads, its results in the order of the items; only a few of them are in memory at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Final, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
MOST: Final = 2
"""Threads, at most: epochs need processors too, and more share little but the memory."""


def processors() -> int:
    """Threads that this process may use at a time, up to `MOST`."""
    return min(
        MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )


def ordered(work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int) -> Iterator[_Result]:
    """The result of each item, in their order. An item is taken when a thread is nearly free for it. Raises what the work raises."""
    if threads < 2:
        yield from map(work, items)
        return
    running: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="headrace-question") as pool:
        for item in items:
            running.append(pool.submit(copy_context().run, work, item))
            if len(running) > threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
