"""Quotas of an owner over the network: number of queries, pushed rows a second, bytes of a request's body, bytes of state and
result rows; and their checks before a request. What exceeds the last two later is in `usage`. A principal with the role
administer has none.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final

from headrace.catalog.catalog import Catalog
from headrace.dataclass import dataclass
from headrace.server.bodies import LARGEST
from headrace.server.problems import Refused
from headrace.server.security.principal import Principal

STATEMENT_SECONDS: Final = 300.0
"""For the statements of a request over the network, unless the administrator sets another limit."""
RESULT_SECONDS: Final = 60.0
"""In which result rows are counted."""


@dataclass(slots=True)
class Quotas:
    """Limits of each owner, and of each request over the network; None: none. Pushed rows fill a bucket that holds one second's rows (token bucket).

    `result_rows` are emitted in `RESULT_SECONDS` by all queries of an owner.
    """

    queries: int | None = None
    rows_per_second: int | None = None
    body_bytes: int = LARGEST
    state_bytes: int | None = None
    result_rows: int | None = None
    statement_seconds: float = STATEMENT_SECONDS
    state_in_use: Mapping[str, int] = field(default_factory=dict)
    """Bytes by owner in lower case, as of the last check of `usage`."""
    seconds: Callable[[], float] = time.monotonic
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)
    """By owner in lower case: rows that may be pushed at once, and when that was so."""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def require_query(self, catalog: Catalog, principal: Principal, further: int = 0) -> None:
        """Raises `Refused` when the owner has as many queries as it may have, `further` ones included, or as much state."""
        if not principal.is_limited:
            return
        in_use = self.state_in_use.get((principal.owner or "").casefold(), 0)
        if self.state_bytes is not None and in_use >= self.state_bytes:
            raise Refused(
                403,
                f"the queries of '{principal.owner}' have {in_use:,} bytes of state, and may have {self.state_bytes:,}",
                "Drop one, or ask the administrator for more (headrace serve --max-state).",
            )
        if self.queries is None:
            return
        count = sum(principal.sees(query.definition) for query in catalog.queries.values()) + further
        if count >= self.queries:
            raise Refused(
                403,
                f"'{principal.owner}' has {count:,} queries, and may have {self.queries:,}",
                "Drop one, or ask the administrator for more (headrace serve --max-queries).",
            )

    @property
    def limits_use(self) -> bool:
        """Whether state or results have a limit."""
        return self.state_bytes is not None or self.result_rows is not None

    def largest_body(self, principal: Principal) -> int:
        """Bytes of the largest body of a request."""
        return self.body_bytes if principal.is_limited else LARGEST

    def seconds_for(self, principal: Principal, wanted: float | None) -> float | None:
        """Seconds for the statements of a request, of which its client has `wanted` so many; None: no limit.

        Over the socket in the home there is none but the client's own.
        """
        if not principal.is_remote:
            return wanted
        return min(self.statement_seconds, wanted or self.statement_seconds)

    def take_rows(self, principal: Principal, rows: int) -> None:
        """Count rows that are about to be pushed.

        Raises `Refused` with the seconds to wait when they are too many now. More rows than those of a second wait until none are
        owed, and are paid for afterwards.
        """
        limit = self.rows_per_second
        if limit is None or not principal.is_limited:
            return
        owner, now = (principal.owner or "").casefold(), self.seconds()
        with self._lock:
            left, before = self._buckets.get(owner, (float(limit), now))
            left = min(float(limit), left + (now - before) * limit)
            if left < min(rows, limit):
                wait = math.ceil((min(rows, limit) - left) / limit)
                raise Refused(
                    429,
                    f"'{principal.owner or ''}' may push {limit:,} rows a second",
                    f"Send these {rows:,} rows in {wait} s.",
                    {"Retry-After": str(wait)},
                )
            self._buckets[owner] = (left - rows, now)
