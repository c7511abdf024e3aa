"""The time limit of a request's statements and reads: they are carried out in a thread, and a request that lasts longer is answered
with what of its statements is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, TypeAlias, TypeVar

from fastapi import Query, Request
from starlette.concurrency import run_in_threadpool

from headrace.runtime.home.deadline import Deadline, DeadlinePassed, limited_by
from headrace.server.problems import Refused
from headrace.server.security.permissions import permissions_of

_Result = TypeVar("_Result")
Timeout: TypeAlias = Annotated[float | None, Query(gt=0, le=86_400)]
"""Seconds for the statements or reads of a request: its parameter `timeout`."""


async def in_time(request: Request, timeout: float | None, work: Callable[[], _Result]) -> _Result:
    """What `work` returns or raises, in a thread.

    Raises `Refused` when the time of the request is over first: what is not done then will not be done.
    """
    permissions = permissions_of(request)
    seconds = permissions.quotas.seconds_for(permissions.principal, timeout)
    if seconds is None:
        return await run_in_threadpool(work)
    deadline = Deadline.after(seconds)

    def limited() -> _Result:
        with limited_by([deadline]):
            return work()

    working = asyncio.ensure_future(run_in_threadpool(limited))
    done, _ = await asyncio.wait({working}, timeout=seconds)
    if not done:
        working.add_done_callback(_retrieve)
        await asyncio.to_thread(deadline.give_up)
        if deadline.is_settled:
            return await working
    if working.done():
        try:
            return working.result()
        except DeadlinePassed:
            pass
    raise _too_long(seconds, deadline.done)


def _retrieve(working: asyncio.Future[_Result]) -> None:
    if not working.cancelled():
        working.exception()  # nobody waits for it any more


def _too_long(seconds: float, done: int) -> Refused:
    effect = (
        "Nothing was changed."
        if not done
        else f"Of its statements the first {done:,} {'is' if done == 1 else 'are'} done, and the others are not."
    )
    return Refused(
        504,
        f"the request took longer than {seconds:g} seconds. {effect}",
        f"Send {'the rest' if done else 'it'} again, with a greater 'timeout' (headrace serve --max-time is the most).",
    )
