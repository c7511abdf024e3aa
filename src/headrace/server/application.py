"""The HTTP application of a hub, put together: routes, access check, error responses, audit log, metrics, and the pages
of the web console. The routes are defined in `routes`.

FastAPI, because it derives the description from the handlers' types, and Starlette below it streams without threads; both are
maintained by many, and uvicorn serves them on sockets that are already open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from fastapi import Depends, FastAPI
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

from headrace import __version__
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.hub.hub import Hub
from headrace.server.access import Access
from headrace.server.connections.encoded_paths import EncodedPaths
from headrace.server.connections.follower_groups import FollowerGroups
from headrace.server.following import ENCODED, Publications
from headrace.server.metrics import HubMetrics, Measured
from headrace.server.monitoring.plan_snapshot import PlanSnapshots
from headrace.server.monitoring.recent_epochs import RecentEpochs
from headrace.server.problems import PROBLEMS, add_handlers
from headrace.server.repetition import Repetitions
from headrace.server.routes import epochs, followers, network, observation, queries, statements, streams
from headrace.server.security.audit import Audited, AuditLog
from headrace.server.security.permissions import Limits
from headrace.server.security.usage import Usage

CONSOLE: Final = Path(__file__).with_name("console")
_ONLY_OURS: Final = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'"
)
"""What a browser may load for the console: files of this server."""


def application(hub: Hub, access: Access, publications: Publications, limits: Limits) -> FastAPI:
    """The routes of a hub, for those whom `access` admits, within their limits."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.hub = hub
        publications.loop = asyncio.get_running_loop()
        app.state.publications = publications
        app.state.encoded = Recent(ENCODED)
        app.state.repetitions = Repetitions()
        hub.on_epoch(publications.epoch)
        watching = [
            asyncio.create_task(access.watch(publications.wake)),
            asyncio.create_task(app.state.usage.watch()),
        ]
        yield
        for task in watching:
            task.cancel()

    app = FastAPI(
        title="Headrace",
        version=__version__,
        description="Standing queries over live streams and their archives.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.follower_groups = FollowerGroups(publications)
    app.state.metrics = HubMetrics(hub, app.state.follower_groups.counts)
    app.state.limits = limits
    app.state.snapshots = PlanSnapshots(hub)
    app.state.usage = Usage(hub, app.state.snapshots, limits.quotas)
    if limits.quotas.limits_use:
        hub.on_epoch(app.state.usage.epoch)
    app.state.recent = RecentEpochs(hub.loop.engine.clock)
    hub.on_epoch(app.state.recent.epoch)
    app.add_middleware(Audited, log=AuditLog(hub.path), clock=hub.loop.engine.clock)
    app.add_middleware(Measured, metrics=app.state.metrics)
    app.add_middleware(EncodedPaths)
    add_handlers(app)
    app.include_router(observation.open_router)
    app.include_router(observation.metrics_router, dependencies=[Depends(access)])
    for routes in (statements, queries, followers, streams, epochs, network, observation):
        app.include_router(routes.router, dependencies=[Depends(access)], responses=PROBLEMS)
    app.include_router(streams.catalog_router, dependencies=[Depends(access)], responses=PROBLEMS)
    app.state.access = access
    app.mount("/console", StaticFiles(directory=CONSOLE), name="console")
    app.add_api_route("/", _console, include_in_schema=False)
    return app


def _console() -> FileResponse:
    """The console's page. It has no facts of the home: its requests have a token where one is needed."""
    return FileResponse(CONSOLE / "index.html", headers={"Content-Security-Policy": _ONLY_OURS})
