"""Dead letters: the rows that a receiver did not take after all attempts, or refused permanently, as JSON lines with the
reason.
"""

from __future__ import annotations

import json
from dataclasses import field
from typing import Final

from headrace.connectors.formats.rendering import to_json
from headrace.dataclass import dataclass
from headrace.runtime.delivery.actions.channel import Message
from headrace.store.files.filesystem import Store
from headrace.time import Instant, render_instant

FOLDER: Final = "dead-letters"
"""Of a home: a folder for each action, with a file for each message. They are the user's: Headrace deletes none."""


@dataclass(slots=True)
class DeadLetters:
    """The dead letters of one action; a message becomes one at most once, since its file is named by it."""

    store: Store
    action: str
    _count: int | None = field(default=None, init=False)

    @property
    def count(self) -> int:
        """The number of messages."""
        if self._count is None:
            self._count = len(self.store.list(f"{FOLDER}/{self.action}/"))
        return self._count

    def add(self, message: Message, target: str, reason: str, attempts: int, now: Instant) -> None:
        """Store a message durably, a line for each of its rows."""
        facts = {
            "query": message.query,
            "action": target,
            "key": message.key,
            "at": render_instant(now),
            "attempts": attempts,
            "reason": reason,
        }
        head = json.dumps(facts, ensure_ascii=False)[:-1]
        lines = "".join(f'{head}, "row": {row}}}\n' for row in to_json(message.rows).splitlines())
        count = self.count
        name = f"{FOLDER}/{self.action}/{message.epoch:012d}-{message.number:06d}.jsonl"
        if self.store.put_if_absent(name, lines.encode()):
            self._count = count + 1
