"""Deadlines of statements: the time until which a change may begin, for the thread that makes it, and how many statements of a
script are done when another thread gives it up.

A thread in Python cannot be ended, so a deadline is checked where a statement waits for a lock and directly before its change is
appended to a log. What has started by then is completed: a statement is done or not, and never in doubt because of its deadline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Protocol, TypeVar

from headrace.dataclass import dataclass
from headrace.errors import HeadraceError

_Result = TypeVar("_Result")
_Statement = TypeVar("_Statement")


class DeadlinePassed(HeadraceError):
    """A statement took too long; nothing of it is done."""

    def __init__(self) -> None:
        super().__init__("the deadline of the statement has passed")


class Lock(Protocol):
    """One of `threading`."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Whether it was free in time; -1: whenever that is."""

    def release(self) -> None:
        """Let others have it."""


@dataclass(slots=True, eq=False)
class Deadline:
    """The time limit of a script. One thread carries it out, another may `give_up`."""

    until: float
    """On the clock of `time.monotonic`."""
    of: int = 1
    """How many statements there are; changes that are made together count as one."""
    done: int = 0
    """How many of the first statements were carried out by the last change."""
    carried_out: int = 1
    """How many a change makes that begins now."""
    has_failed: bool = False
    """Whether a change ended with an error, which states what is done."""
    _is_given_up: bool = False
    changing: threading.RLock = field(default_factory=threading.RLock)
    """Held while a change is appended to a log."""

    @staticmethod
    def after(seconds: float) -> Deadline:
        """One that passes in so many seconds."""
        return Deadline(time.monotonic() + seconds)

    @property
    def is_settled(self) -> bool:
        """Whether its thread is about to end, with the outcome of all statements or with the error of a change."""
        return self.has_failed or self.done == self.of

    @property
    def has_passed(self) -> bool:
        """Whether no change may begin any more."""
        return self._is_given_up or time.monotonic() >= self.until

    def give_up(self) -> None:
        """Let no further change begin; returns once one that has started is completed."""
        with self.changing:
            self._is_given_up = True


_current: ContextVar[tuple[Deadline, ...]] = ContextVar("deadlines", default=())
"""Those of the statements that this thread carries out: several where it does so for other threads."""


def current() -> tuple[Deadline, ...]:
    """The deadlines of this thread's statements."""
    return _current.get()


@contextmanager
def limited_by(deadlines: Sequence[Deadline]) -> Iterator[None]:
    """A block whose statements have these deadlines and no others."""
    token = _current.set(tuple(deadlines))
    try:
        yield
    finally:
        _current.reset(token)


def require_time() -> None:
    """Raises `DeadlinePassed` once a deadline of this thread's statements has passed."""
    if any(deadline.has_passed for deadline in current()):
        raise DeadlinePassed


def time_left() -> float | None:
    """Seconds until the first deadline of this thread's statements; None where they have none."""
    deadlines = current()
    return max(0.0, min(each.until for each in deadlines) - time.monotonic()) if deadlines else None


@contextmanager
def held_in_time(lock: Lock) -> Iterator[None]:
    """A block that holds a lock. Raises `DeadlinePassed` where the lock is not free in time."""
    seconds = time_left()
    if not lock.acquire(timeout=-1 if seconds is None else seconds):
        raise DeadlinePassed
    try:
        yield
    finally:
        lock.release()


def change(make: Callable[[], _Result]) -> _Result:
    """Make a change of the home, if there is time for it to begin; it returns False if it has changed nothing.

    Raises `DeadlinePassed`, and what `make` raises.
    """
    with ExitStack() as started:
        for deadline in current():
            started.enter_context(deadline.changing)
        require_time()
        try:
            result = make()
        except BaseException:
            for deadline in current():
                deadline.has_failed = True
            raise
        if result is not False:
            for deadline in current():
                deadline.done = deadline.carried_out
        return result


def one_by_one(statements: Sequence[_Statement]) -> tuple[Iterator[_Statement], Callable[[_Statement], bool]]:
    """A script's statements, and a function to call before one whose changes do not wait for those of others.

    They are counted for the deadlines of this thread. The function raises `DeadlinePassed`.
    """
    numbers = {id(statement): number for number, statement in enumerate(statements)}
    for deadline in current():
        deadline.of, deadline.carried_out = len(statements), 0

    def counted() -> Iterator[_Statement]:
        for number, statement in enumerate(statements):
            yield statement
            for deadline in current():
                deadline.carried_out = number + 1

    def before(statement: _Statement) -> bool:
        require_time()
        for deadline in current():
            deadline.carried_out = numbers[id(statement)] + 1
        return True

    return counted(), before
