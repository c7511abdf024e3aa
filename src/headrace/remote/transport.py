"""HTTP requests to a running hub, over the socket in its home or to a URL: responses as JSON, text or Arrow tables, and
error responses as the exceptions that the hub itself would raise.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.errors import HeadraceError, NameTaken, Span, UnknownName, UserError
from headrace.remote.sockets import short_address

ARROW: Final = "application/vnd.apache.arrow.stream"
_CONNECT_SECONDS: Final = 10.0


class HubGone(HeadraceError):
    """The hub does not answer: its process has ended, or the network has failed. A request may be repeated."""


@dataclass(frozen=True, slots=True)
class Transport:
    """A connection to one hub; `address` is the home's folder or a URL, for messages."""

    address: str
    client: httpx.Client

    @staticmethod
    def to_home(home: Path) -> Transport:
        """To the hub that runs on a home of this machine."""
        http = httpx.HTTPTransport(uds=short_address(home))
        return Transport(str(home), httpx.Client(transport=http, base_url="http://hub", timeout=_timeouts()))

    @staticmethod
    def to_url(url: str, token: str | None) -> Transport:
        """To the hub at a URL."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return Transport(url, httpx.Client(base_url=url, headers=headers, timeout=_timeouts()))

    def json(self, method: str, path: str, *, script: str | None = None, **request: Any) -> Any:
        """The JSON of a response. A `script` is the request's body, in which mistakes have their place.

        Raises the error of the hub's problem response, and `HubGone` when there is no response.
        """
        if script is not None:
            request["content"] = script.encode()
        return self._request(method, path, script, **request).json()

    def text(self, method: str, path: str, **request: Any) -> str:
        """The text of a response; raises as `json`."""
        return self._request(method, path, **request).text

    def table(self, path: str, params: Mapping[str, Any]) -> tuple[pa.Table, Mapping[str, Any]]:
        """A table, and the facts that come with it; raises as `json`."""
        response = self._request("GET", path, params=_given(params), headers={"Accept": ARROW})
        return table_of(response.content), _json(response.headers["Headrace-Facts"])

    @contextmanager
    def stream(self, path: str, params: Mapping[str, Any]) -> Iterator[httpx.Response]:
        """A response that is read while it comes; raises as `json`."""
        with (
            _answering(self.address),
            self.client.stream(
                "GET", path, params=_given(params), timeout=httpx.Timeout(_CONNECT_SECONDS, read=60.0)
            ) as response,
        ):
            if response.is_error:
                response.read()
                raise error_of(response)
            yield response

    def _request(self, method: str, path: str, script: str | None = None, **request: Any) -> httpx.Response:
        with _answering(self.address):
            response = self.client.request(method, path, **request)
        if response.is_error:
            raise error_of(response, script)
        return response

    def close(self) -> None:
        """Close the connections."""
        self.client.close()


@contextmanager
def _answering(address: str) -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as error:
        raise HubGone(f"the hub of {address} does not answer: {error}") from error


def error_of(response: httpx.Response, script: str | None = None) -> HeadraceError:
    """The error that a response describes, placed in the script that was sent."""
    try:
        problem = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        return HeadraceError(f"the hub answered {response.status_code}: {response.text[:200]}")
    message, remedy = problem["message"], problem["remedy"]
    if response.status_code >= 500:
        return HeadraceError(message if remedy is None else f"{message}\n  {remedy}")
    kind = {404: UnknownName, 409: NameTaken}.get(response.status_code, UserError)
    if script is None or problem["line"] is None:
        return kind(message, remedy=remedy)
    start = sum(len(line) + 1 for line in script.split("\n")[: problem["line"] - 1]) + problem["column"] - 1
    return kind(message, span=Span(start, start + problem["width"]), text=script, remedy=remedy)


def table_of(stream: bytes) -> pa.Table:
    """The table of an Arrow stream."""
    with pa.ipc.open_stream(stream) as reader:
        return reader.read_all()


def table_of_text(text: str) -> pa.Table:
    """The table of an Arrow stream in base 64."""
    return table_of(base64.b64decode(text))


def segment(name: str) -> str:
    """A name as a segment of a path; `.` and `..` would be removed from the path."""
    return quote(name, safe="").replace(".", "%2E")


def _given(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


def _json(text: str) -> Mapping[str, Any]:
    facts: Mapping[str, Any] = json.loads(text)
    return facts


def _timeouts() -> httpx.Timeout:
    return httpx.Timeout(None, connect=_CONNECT_SECONDS)  # a statement may wait for an epoch
