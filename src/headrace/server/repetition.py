"""Repetitions of requests: the answer that a request with an `Idempotency-Key` got, for the request that repeats it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import field
from typing import Final, TypeAlias

from headrace.dataclass import dataclass
from headrace.runtime.home.deadline import DeadlinePassed, require_time, time_left
from headrace.runtime.home.lru_cache import Recent
from headrace.server.problems import Refused

_Key: TypeAlias = tuple[str, str]
_Answer: TypeAlias = tuple[Hashable, Future[str]]
"""A request, and what was answered."""
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

    _answers: Recent[_Key, _Answer] = field(default_factory=lambda: Recent(_MOST_BYTES, _size))
    _under_way: dict[_Key, _Answer] = field(default_factory=dict)
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
            known = self._under_way.get(key) or self._answers.get(key)
            if known is None:
                self._under_way[key] = request, first
        if known is None:
            return self._make(key, (request, first), make)
        if known[0] != request:
            raise used_before(key[1])
        try:
            return known[1].result(time_left())
        except TimeoutError:
            raise DeadlinePassed from None
        except DeadlinePassed:  # the first one's, which has dropped the key
            require_time()
            return self.answer(key, request, make)

    def _make(self, key: _Key, answer: _Answer, make: Callable[[], str]) -> str:
        """Make an answer; an error is that of the requests that wait for it, and is not remembered."""
        _, made = answer
        try:
            made.set_result(make())
        except BaseException as error:
            with self._lock:
                del self._under_way[key]
            made.set_exception(error)
            raise
        with self._lock:
            self._answers.put(key, answer)
            del self._under_way[key]
        return made.result()


def _size(answer: _Answer) -> int:
    """Bytes that count for an answer: at least so many that the number of answers has a bound, and not so many that it is left out."""
    request, made = answer
    size = sys.getsizeof(str(request)) + sys.getsizeof(made.result())
    return min(max(size, _MOST_BYTES // _KEPT), _MOST_BYTES)
