"""The factory of outboxes: from an action's definition, its channel (webhook, mail, stream or folder) and its outbox, with
the defaults of its options.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.catalog.catalog import CatalogQuery
from headrace.catalog.definitions import ActionDefinition
from headrace.dataclass import dataclass
from headrace.language.parser.literals import interval_text
from headrace.runtime.delivery.actions.channel import Channel
from headrace.runtime.delivery.actions.dead_letters import DeadLetters
from headrace.runtime.delivery.actions.mail import Mail
from headrace.runtime.delivery.actions.outbox import Outbox, cursor_of
from headrace.runtime.delivery.actions.receivers import Receivers
from headrace.runtime.delivery.actions.secret import secret_of
from headrace.runtime.delivery.actions.writing import FolderWriter, Push, StreamWriter
from headrace.runtime.delivery.sink_states import Patience, SinkState
from headrace.runtime.delivery.sinks import folder_receiver
from headrace.time import SECOND

if TYPE_CHECKING:
    import httpx

    from headrace.runtime.epoch.pipeline import Pipeline

_BATCH: Final = "500"
_ATTEMPTS: Final = "10"
_TIMEOUT: Final = "10 SECONDS"
_WAIT: Final = "0.5 SECONDS"
_LONGEST_WAIT: Final = "1 MINUTE"


@dataclass
class Maker:
    """Makes outboxes. Its HTTP client is made with the first webhook, and belongs to the thread that sends."""

    pipeline: Pipeline
    push: Push
    slots: asyncio.Semaphore
    """Mails on the way."""
    receivers: Receivers | None

    def outbox(self, query: CatalogQuery, action: ActionDefinition) -> Outbox:
        """The outbox of an action of a query, at its stored position."""
        cursor = cursor_of(self.pipeline, action)
        return Outbox(
            self.pipeline,
            query.definition.name,
            query.operator_id,
            action,
            self._channel(query.definition.name, action),
            Patience(_seconds(action, "wait", _WAIT), _seconds(action, "longestwait", _LONGEST_WAIT)),
            SinkState(self.pipeline.loop.engine.clock()),
            DeadLetters(self.pipeline.home.store, action.id),
            cursor,
            max(cursor.read(), action.since),
        )

    def _channel(self, query: str, action: ActionDefinition) -> Channel:
        if action.kind == "stream":
            return StreamWriter(action.target, self.push)
        if action.kind == "folder":
            files = action.files or query
            return FolderWriter(folder_receiver(Path(action.target), files, action.option("format", "csv")))
        batch, attempts = int(action.option("batch", _BATCH)), int(action.option("attempts", _ATTEMPTS))
        seconds = _seconds(action, "timeout", _TIMEOUT)
        if action.kind == "notify":
            return Mail(
                to=action.target,
                server=action.option("server", ""),
                sender=action.option("sender", ""),
                user=action.option("user", ""),
                batch=batch,
                attempts=attempts,
                seconds=seconds,
                secret=self._secret(action),
                receivers=self.receivers,
                slots=self.slots,
            )
        from headrace.runtime.delivery.actions.webhook import Webhook  # noqa: PLC0415 - an HTTP client, for hubs that call

        clock = self.pipeline.loop.engine.clock
        return Webhook(
            *(
                action.target,
                batch,
                attempts,
                seconds,
                self._secret(action),
                self.receivers,
                self.client,
                clock,
            )
        )

    def _secret(self, action: ActionDefinition) -> Callable[[], bytes | None]:
        return lambda: secret_of(action, self.pipeline.path)

    @cached_property
    def client(self) -> httpx.AsyncClient:
        """The HTTP client: no redirects, no proxies of the environment, a connection for each request."""
        import httpx  # noqa: PLC0415 - as above

        return httpx.AsyncClient(
            verify=ssl.create_default_context(),
            trust_env=False,
            timeout=None,  # noqa: S113 - a webhook limits the whole attempt
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def close(self) -> None:
        """Close the HTTP client, in the thread that has used it."""
        if "client" in self.__dict__:
            await self.client.aclose()


def _seconds(action: ActionDefinition, name: str, default: str) -> float:
    return interval_text(action.option(name, default)) / SECOND
