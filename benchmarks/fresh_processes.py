"""The same work in several processes, one after another, each new.

The place of a process's memory, which the kernel chooses, is worth several percent of its speed and stays the same while it
runs: rounds within one process cannot separate that from what is measured, rounds of several can. Each has the memory settings of the
workers that run the pipeline.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TypeVar

from headrace.runtime.spark.launch import KEPT_MEMORY

Answer = TypeVar("Answer")


def in_each(processes: int, work: Callable[..., Answer], *arguments: object) -> list[Answer]:
    """What `work` gives in each of so many new processes; it and `arguments` must pickle. Raises what it raises."""
    with _environment(KEPT_MEMORY):
        return [_alone(work, *arguments) for _ in range(processes)]


def _alone(work: Callable[..., Answer], *arguments: object) -> Answer:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
