"""Routes under `/v1/epochs`: the newest epochs for a performance monitor; wait for the
input that is there; pause, resume and single-step epochs.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request

from headrace.errors import NameTaken
from headrace.observation import EpochObservation
from headrace.runtime.home.deadline import require_time
from headrace.runtime.hub.hub import Hub
from headrace.server.connections.statement_time import Timeout, in_time
from headrace.server.monitoring.plan_snapshot import PlanSnapshots
from headrace.server.monitoring.recent_epochs import RecentEpochs
from headrace.server.problems import Refused
from headrace.server.security.permissions import needs_administer

router = APIRouter(prefix="/v1/epochs", tags=["epochs"])
_WORKS: Final = 30
"""Pieces of work of a step that are described."""
_START_SECONDS: Final = 0.05
"""How long a step waits for an engine that is starting."""


@router.get("")
def epochs(
    request: Request, after: int = -1, limit: Annotated[int, Query(ge=1, le=1200)] = 240
) -> dict[str, Any]:
    """The newest epochs after one, oldest first, since this process started."""
    recent: RecentEpochs = request.app.state.recent
    return {**_state(_hub(request)), "epochs": recent.after(after, limit)}


@router.post("/pause", dependencies=[Depends(needs_administer)])
def pause(request: Request) -> dict[str, Any]:
    """Finish the epoch under way, and begin no other: pushes are still taken in, and wait."""
    hub = _hub(request)
    hub.stop()
    return _state(hub)


@router.post("/resume", dependencies=[Depends(needs_administer)])
def resume(request: Request) -> dict[str, Any]:
    """Run epochs again."""
    hub = _hub(request)
    hub.start()
    return _state(hub)


@router.post("/catch-up", dependencies=[Depends(needs_administer)])
async def catch_up(request: Request, timeout: Timeout = None) -> dict[str, Any]:
    """Wait until epochs have consumed all input of the time of the request: files that are there, pushes, and what Spark has delivered.

    After `timeout` seconds the answer is 504. Epochs have to run.
    """
    hub = _hub(request)
    if not await in_time(request, timeout, lambda: hub.loop.await_input(_has_time)):
        failure = hub.loop.failure
        reason = "epochs are paused" if failure is None else f"the epochs ended: {failure}"
        raise NameTaken(reason, remedy="Resume them: POST /v1/epochs/resume.")
    return _state(hub)


def _has_time() -> bool:
    require_time()
    return True


@router.post("/step", dependencies=[Depends(needs_administer)])
def step(request: Request) -> dict[str, Any]:
    """One epoch, and what it did: its work, the longest first. `observed` is null where nothing waits. Epochs have to be paused."""
    hub = _hub(request)
    if hub.loop.is_running:
        raise NameTaken("epochs run by themselves", remedy="Pause them first: POST /v1/epochs/pause.")
    if not hub.loop.engine.executor.ready(_START_SECONDS):
        raise Refused(503, "the engine is starting", "Try again in a moment.")
    observed = hub.loop.step()
    return {**_state(hub), "observed": None if observed is None else _facts(request, observed)}


def _facts(request: Request, observed: EpochObservation) -> dict[str, Any]:
    """An epoch's rows and times, and its work as EXPLAIN calls it."""
    snapshots: PlanSnapshots = request.app.state.snapshots
    graph = snapshots.current().graph
    longest = sorted(observed.work.items(), key=lambda work: -work[1].nanoseconds)[:_WORKS]
    works = []
    for key, measured in longest:
        position = graph.sharing.place_of(key)
        label = key if position is None else graph.sharing.works[position].label
        works.append({"name": key, "label": label, **asdict(measured)})
    facts = {name: getattr(observed, name) for name in ("epoch", "rows", "late", "rejected")}
    return {
        **facts,
        "seconds": dict(observed.seconds),
        "works": works,
        "further": len(observed.work) - len(works),
    }


def _state(hub: Hub) -> dict[str, Any]:
    return {"running": hub.loop.is_running, "epoch": hub.home.latest().epoch}


def _hub(request: Request) -> Hub:
    hub: Hub = request.app.state.hub
    return hub
