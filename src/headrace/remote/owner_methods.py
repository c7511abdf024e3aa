"""Methods of a hub that only the process has which opened its home: a client of the hub refuses them, and its error is what to do
instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from headrace.errors import UserError

_BY_ITSELF: Final = (
    "The hub runs its epochs by itself. POST /v1/epochs/pause, …/step and …/resume control them."
)
_CODE: Final = "Its code runs in the process that opened the home with hr.open: register it there. Then statements of all clients can use it."
_THERE: Final = "Call it in the process that opened the home with hr.open."
_CURSOR: Final = "Use follow(client=…), and acknowledge over HTTP; on the same machine hr.connect(home, query, name) is such a client."


def _refused(method: str, remedy: str) -> Callable[..., NoReturn]:
    """A method that raises `UserError`, whatever its arguments."""

    def refused(self: object, *_: Any, **__: Any) -> NoReturn:
        raise UserError(
            f"{self!r} has no '{method}': it is for the process that opened the home", remedy=remedy
        )

    refused.__name__, refused.__doc__ = method, f"Refused. {remedy}"
    return refused


class OwnerMethods:
    """The methods of `Hub` that a client refuses. Each raises `UserError`."""

    archive = _refused(
        "archive",
        f"{_THERE} A client registers a query of all columns of the stream, and reads its history().",
    )
    create_stream = _refused(
        "create_stream",
        "A DataFrame runs in the process that made it: call it there, with hr.open. A client makes other streams by "
        "execute('CREATE STREAM … USING …').",
    )
    register_function = _refused("register_function", _CODE)
    register_window = _refused("register_window", _CODE)
    sink = _refused(
        "sink", f"{_THERE} A client follows a query, or registers it with an action: CREATE QUERY … THEN …"
    )
    finish = _refused("finish", _BY_ITSELF)
    start = _refused("start", _BY_ITSELF)
    stop = _refused("stop", _BY_ITSELF)
    on_epoch = _refused("on_epoch", f"{_THERE} GET /v1/epochs has the newest epochs.")
    on_failure = _refused("on_failure", f"{_THERE} GET /v1/status has the failures.")
    pushed = _refused("pushed", "Repeat the push with its producer and sequence: it counts once.")
    acknowledge_amnesia = _refused("acknowledge_amnesia", _THERE)
    vacuum = _refused("vacuum", _THERE)
    check = _refused("check", "Run: headrace check --home DIR, on the machine that has the home.")
    stream_definition = _refused("stream_definition", "Use execute('DESCRIBE name').")


class OwnerQueryMethods:
    """The methods of `QueryHandle` that a client refuses. Each raises `UserError`."""

    client = _refused("client", _CURSOR)
    completeness = _refused("completeness", "Use execute('SHOW QUERIES'), whose column complete_since it is.")
