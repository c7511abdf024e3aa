"""What is measured in fresh processes is: each its own, with the memory settings of the pipeline's workers; failures come through."""

from __future__ import annotations

import os

import pytest

from benchmarks.fresh_processes import in_each
from headrace.runtime.spark.launch import KEPT_MEMORY


def _process(name: str) -> tuple[int, str | None]:
    return os.getpid(), os.environ.get(name)


def _fails() -> None:
    raise ValueError("of the child")


def test_each_is_a_process_of_its_own_with_the_workers_memory() -> None:
    before = dict(os.environ)
    processes = in_each(2, _process, "MALLOC_TRIM_THRESHOLD_")
    assert len({os.getpid(), *(number for number, _ in processes)}) == 3
    assert {setting for _, setting in processes} == {KEPT_MEMORY["MALLOC_TRIM_THRESHOLD_"]}
    assert dict(os.environ) == before


def test_what_a_process_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="of the child"):
        in_each(1, _fails)
