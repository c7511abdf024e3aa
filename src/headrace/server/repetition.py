"""Repetitions of requests: the answer that a request with an `Idempotency-Key` got, for the request that repeats it."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import field
from typing import Final, TypeAlias

from headrace.dataclass import dataclass
from headrace.runtime.home.deadline import DeadlinePassed, require_time, time_left
from headrace.server.problems import Refused

_Key: TypeAlias = tuple[str, str]
_KEPT: Final = 4096
_MOST_BYTES: Final = 64 << 20
"""Of answers with their requests."""
LONGEST_KEY: Final = 200
"""Characters."""


def require_key(key: str) -> None:
    """Raises `Refused` for a key that is empty or too long."""
    if not 0 < len(key) <= LONGEST_KEY:
        raise Refused(400, f"an Idempotency-Key has 1 to {LONGEST_KEY} characters")


def used_before(key: str) -> Refused:
    """The problem of a request whose key was that of another one."""
    return Refused(
        409, f"the Idempotency-Key '{key}' was used for another request", "Use a new key for each."
    )


@dataclass(slots=True)
class Repetitions:
    """Answers by the token of the sender and its key: those asked for last, 4,096 and 64 MiB at most, but in any case the newest.

    A request that comes while the first is under way waits for it.
    """

    _answers: dict[_Key, tuple[Hashable, Future[str]]] = field(default_factory=dict)
    """Also those under way."""
    _sizes: OrderedDict[_Key, int] = field(default_factory=OrderedDict)
    """Of those that were made, the one that was not asked for the longest time first."""
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, key: _Key | None, request: Hashable, make: Callable[[], str]) -> str:
        """The first answer to this request, made now if there is none; without a key a new one each time.

        Raises `Refused` when the key was used for another request, and `DeadlinePassed`.
        """
        if key is None:
            return make()
        require_key(key[1])
        first: Future[str] = Future()
        with self._lock:
            known = self._answers.get(key)
            if known is None:
                self._answers[key] = (request, first)
            elif key in self._sizes:
                self._sizes.move_to_end(key)
        if known is None:
            return self._make(key, request, first, make)
        if known[0] != request:
            raise used_before(key[1])
        try:
            return known[1].result(time_left())
        except TimeoutError:
            raise DeadlinePassed from None
        except DeadlinePassed:  # the first one's, which has dropped the key
            require_time()
            return self.answer(key, request, make)

    def _make(self, key: _Key, request: Hashable, answer: Future[str], make: Callable[[], str]) -> str:
        """Make an answer; an error is that of the requests that wait for it, and is not remembered."""
        try:
            made = make()
        except BaseException as error:
            with self._lock:
                del self._answers[key]
            answer.set_exception(error)
            raise
        answer.set_result(made)
        self._remember(key, sys.getsizeof(str(request)) + sys.getsizeof(made))
        return made

    def _remember(self, key: _Key, size: int) -> None:
        """Count an answer that was made, and drop others until they are few and small enough."""
        with self._lock:
            self._sizes[key] = size
            self._bytes += size
            while len(self._sizes) > _KEPT or (self._bytes > _MOST_BYTES and len(self._sizes) > 1):
                oldest, freed = self._sizes.popitem(last=False)
                self._bytes -= freed
                del self._answers[oldest]
