"""Work of a block of code, counted: steps of Python's interpreter, and what is asked of the disk. No clock."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from headrace.store.files.filesystem import LocalStore

CALLS = ("read", "map", "exists", "list", "delete", "write_once", "put_if_absent", "sync")


@contextmanager
def steps() -> Iterator[Counter[str]]:
    """`steps`: bytecodes that the block executes in this thread, in all that it calls; loops in C count as one."""
    counts: Counter[str] = Counter()
    executed = 0

    def called(frame: FrameType, _: str, __: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return step

    def step(_: FrameType, event: str, __: object) -> Any:
        nonlocal executed
        if event == "opcode":
            executed += 1
        return step

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield counts
    finally:
        sys.settrace(before)
        counts["steps"] = executed


@contextmanager
def disk_calls() -> Iterator[Counter[str]]:
    """How often a store is asked for something, the files that listings give, and the bytes that are read and written."""
    asked: Counter[str] = Counter()

    def counting(name: str) -> Any:
        original = getattr(LocalStore, name)

        def count(self: LocalStore, *args: Any, **options: Any) -> Any:
            answer = original(self, *args, **options)
            asked[name] += 1
            if name == "list":
                asked["listed"] += len(answer)
            if name == "read":
                asked["bytes read"] += len(answer)
            if name == "map":
                asked["bytes read"] += answer.size
            if name == "put_if_absent":
                asked["bytes written"] += len(args[1])
            if name == "write_once":
                asked["bytes written"] += answer
            return answer

        return count

    with pytest.MonkeyPatch.context() as patched:
        for name in CALLS:
            patched.setattr(LocalStore, name, counting(name))
        yield asked
