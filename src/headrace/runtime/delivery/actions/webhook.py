"""Webhooks: a POST of rows as JSON, signed after the Standard Webhooks specification (https://www.standardwebhooks.com).

A request has `Idempotency-Key` and `webhook-id` (the key of its message: equal in every attempt), `webhook-timestamp` (seconds
since 1970, of the attempt), and with a secret `webhook-signature`: `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`.
A secret that begins with `whsec_` is the base64 of its bytes. Each request has a connection of its own: one that was idle may be
closed by the receiver while a request is on its way, which may have arrived or not.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Final

import httpx

from headrace.connectors.formats.rendering import to_json
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.runtime.delivery.actions.channel import Message, Undelivered, in_own_thread
from headrace.runtime.delivery.actions.receivers import Receivers
from headrace.time import SECOND, Clock

_WHSEC: Final = b"whsec_"
_LATER: Final = frozenset({408, 425, 429})
_LONGEST_AFTER: Final = 3600.0
"""Seconds that a receiver may ask to wait."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A URL that gets a POST for each message. `seconds`: the limit of one attempt, from resolving the name to the status."""

    url: str
    batch: int
    attempts: int
    seconds: float
    secret: Callable[[], bytes | None]
    receivers: Receivers | None
    client: httpx.AsyncClient
    clock: Clock

    async def send(self, message: Message) -> None:
        """POST a message. Raises `Undelivered` for a status that is not 2xx, and where none arrives in time."""
        body = body_of(message)
        try:
            headers = headers_of(message, body, self.clock() // SECOND, self.secret())
        except UserError as error:
            raise Undelivered(error.message) from None
        try:
            async with asyncio.timeout(self.seconds):
                request = await self._request(body, headers)
                response = await self.client.send(request, stream=True)
                await response.aclose()
        except TimeoutError:
            raise Undelivered(f"no answer within {self.seconds:g} seconds") from None
        except (httpx.HTTPError, OSError) as error:
            raise Undelivered(f"{type(error).__name__}: {error}") from None
        _require_taken(response, self.clock() / SECOND)

    async def _request(self, body: bytes, headers: dict[str, str]) -> httpx.Request:
        """The request, to an address that was checked: a second look-up of the name could give another one."""
        url, extensions = httpx.URL(self.url), dict[str, str]()
        if self.receivers is not None:
            port = url.port or (443 if url.scheme == "https" else 80)
            address = await in_own_thread(partial(self.receivers.address, url.host, port))
            headers["Host"] = url.netloc.decode("ascii")
            extensions["sni_hostname"] = url.host
            url = url.copy_with(host=address)
        return self.client.build_request("POST", url, content=body, headers=headers, extensions=extensions)


def body_of(message: Message) -> bytes:
    """The body of a request."""
    facts = {"query": message.query, "epoch": message.epoch, "batch": message.number, "key": message.key}
    rows = ",".join(to_json(message.rows).splitlines())
    return f'{json.dumps(facts, ensure_ascii=False)[:-1]}, "rows": [{rows}]}}'.encode()


def headers_of(message: Message, body: bytes, seconds: int, secret: bytes | None) -> dict[str, str]:
    """The headers of a request.

    Raises `UserError` for a secret `whsec_…` that is not base64.
    """
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "headrace",
        "Idempotency-Key": message.key,
        "webhook-id": message.key,
        "webhook-timestamp": str(seconds),
    }
    if secret is not None:
        signed = f"{message.key}.{seconds}.".encode() + body
        mac = hmac.new(_key(secret), signed, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(mac).decode()}"
    return headers


def _key(secret: bytes) -> bytes:
    if not secret.startswith(_WHSEC):
        return secret
    try:
        return base64.b64decode(secret.removeprefix(_WHSEC), validate=True)
    except binascii.Error:
        raise UserError("the secret begins with whsec_, and the rest is not base64") from None


def _require_taken(response: httpx.Response, now: float) -> None:
    status = response.status_code
    if 200 <= status < 300:
        return
    reason = f"status {status} {response.reason_phrase}".rstrip()
    if 300 <= status < 400:
        raise Undelivered(f"{reason}: redirects are not followed", lasting=True)
    if status >= 500 or status in _LATER:
        raise Undelivered(reason, after=_seconds_after(response.headers.get("retry-after", ""), now))
    raise Undelivered(reason, lasting=True)


def _seconds_after(text: str, now: float) -> float:
    """`Retry-After` in seconds, from a number or a date; 0 for none and for one that is not understood."""
    if text.isascii() and text.isdigit():
        return min(float(text), _LONGEST_AFTER)
    try:
        return min(max(0.0, parsedate_to_datetime(text).timestamp() - now), _LONGEST_AFTER)
    except (TypeError, ValueError):
        return 0.0
