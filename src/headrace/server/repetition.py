"""Repetitions of requests: the answer that a request with an `Idempotency-Key` got, for the request that repeats it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headrace.runtime.home.lru_cache import Recent
from headrace.server.problems import Refused

_KEPT: Final = 4096
LONGEST_KEY: Final = 200
"""Characters."""


@dataclass(slots=True)
class Repetitions:
    """Answers by key. A request that comes while the first is under way waits for it."""

    _answers: Recent[str, tuple[str, str]] = field(default_factory=lambda: Recent(_KEPT))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, key: str | None, request: str, make: Callable[[], str]) -> str:
        """The first answer to this request, made now if there is none; without a key a new one each time.

        Raises `Refused` when the key was used for another request.
        """
        if key is None:
            return make()
        if not 0 < len(key) <= LONGEST_KEY:
            raise Refused(400, f"an Idempotency-Key has 1 to {LONGEST_KEY} characters")
        with self._lock:
            known = self._answers.get(key)
            if known is not None and known[0] != request:
                raise Refused(
                    409,
                    f"the Idempotency-Key '{key}' was used for another request",
                    "Use a new key for each.",
                )
            if known is None:
                known = (request, make())
                self._answers.put(key, known)
            return known[1]
