"""`hr.open`: the hub of a home in this process, which other processes reach through the socket in the home.
`hr.connect`: the hub of another process, or, with the name of a query, a client that reads that query's results.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from headrace.runtime.hub import opening

if TYPE_CHECKING:
    from headrace.remote.remote_hub import RemoteHub
    from headrace.runtime.delivery.client import Client
    from headrace.runtime.epoch.pipeline import Pipeline
    from headrace.runtime.hub.hub import Hub


def open_hub(home: str | Path, **options: Any) -> Hub:
    """As `headrace.runtime.hub.opening.open_hub`, and listening on the socket in the home until it is closed."""
    hub = opening.open_hub(home, **options)
    from headrace.remote.sockets import local_socket  # noqa: PLC0415 - while Java starts
    from headrace.server.listener import listener_of  # noqa: PLC0415

    try:
        listener = listener_of(hub, [local_socket(hub.path)])
    except OSError:  # a file system without sockets: the hub works, and only this process uses it
        return hub
    listener.start()
    hub.on_close(listener.stop)
    return hub


@overload
def connect(at: str | Path, *, token: str | None = None) -> RemoteHub: ...
@overload
def connect(at: Pipeline | str | Path, query: str, name: str) -> Client: ...
def connect(
    at: Pipeline | str | Path, query: str | None = None, name: str = "", *, token: str | None = None
) -> RemoteHub | Client:
    """The hub that another process runs on a home, or at a URL (with its token).

    With a query and a name: that client of the query, on a home that any process may write, or none; see `Client`.
    """
    from headrace.remote.remote_hub import connect_hub  # noqa: PLC0415 - to open a home needs neither of the two
    from headrace.runtime.delivery.client import connect as connect_client  # noqa: PLC0415

    if query is not None:
        return connect_client(at, query, name)
    assert isinstance(at, str | Path)
    return connect_hub(at, token)
