"""A process that registers, changes and drops queries, reads the archive, invokes and acknowledges, until a test kills it.

`python -m tests.runtime.standing_victim FOLDER SEED` prints what it is about to do, and what is done (which then must last).
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

from headrace.runtime.backfill.backfill_scheduler import Chunk, ReplaySchedule
from headrace.runtime.hub.hub import Hub
from tests.runtime.rig import Rig
from tests.runtime.statements.test_alter_window import ONE_FILE, SLACK, TEXT, WINDOWS

BOUNDS = "BEGIN NOW - INTERVAL 15 SECONDS END NOW"
TEXTS = (
    "SELECT k, COUNT(*) AS n, SUM(x) AS total FROM s [RANGE TUMBLING 5 SECONDS] GROUP BY k",
    f"SELECT k, x FROM s WHERE x > 1 {BOUNDS}",
    f"SELECT g, COUNT(*) AS n FROM s WHERE x > 0 {BOUNDS} GROUP BY g",
)
FIRST = {"q": TEXT.format(window=WINDOWS[0], where=""), "kept": TEXTS[0], "partial": TEXTS[1]}


class OneByOne(ReplaySchedule):
    """The archive is read an epoch at a time, in turns with live ones."""

    def chunk(self) -> Chunk:
        return Chunk(1, 1)


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 - its report


class Victim:
    def __init__(self, hub: Hub, folder: Path, seed: int) -> None:
        self.hub, self.folder, self.random, self.made = hub, folder, random.Random(seed), 0
        hub.loop.engine.replay_schedule = OneByOne()
        hub.loop.engine.housekeeping.every = 7
        hub.loop.engine.housekeeping.grace = 0

    def alter(self) -> None:
        there = self.hub.catalog.require_query("q").definition.text
        window = self.random.choice([window_ for window_ in WINDOWS if window_ not in there])
        say("altering", self.hub.home.latest().stream("s").punctuation, window)
        self.hub.execute(f"ALTER QUERY q SET WINDOW {window}")
        say("altered")

    def register(self) -> None:
        name, text = f"n{os.getpid()}_{self.made}", self.random.choice(TEXTS)
        self.made += 1
        say("registering", name)
        self.hub.register(text, name)
        say("registered", name)

    def drop(self) -> None:
        extra = [
            name for query in self.hub.catalog.queries.values() if (name := query.definition.name)[0] == "n"
        ]
        if len(extra) > 3:
            say("dropping", extra[0])
            self.hub.drop_query(extra[0])
            say("dropped", extra[0])

    def invoke(self) -> None:
        say("invoking")
        for query in self.hub.catalog.queries.values():
            self.hub.query(query.definition.name).invoke()

    def acknowledge(self) -> None:
        client = self.hub.query("kept").client("victim")
        delivery = client.fetch()
        if delivery is not None:
            with (self.folder / "taken").open(
                "a"
            ) as file:  # what it did with the rows, before it acknowledges
                file.write(f"{delivery.position}\n")
                file.flush()
                os.fsync(file.fileno())
            say("acknowledging", delivery.position)
            client.acknowledge(delivery)
            say("acknowledged", delivery.position)

    def step(self) -> None:
        seen = self.hub.loop.step(live_first=True)
        if seen is None:
            time.sleep(0.002)
        else:
            say(seen.kind, seen.epoch)

    def live(self) -> None:
        while True:
            for _ in range(self.random.randint(1, 4)):
                self.step()
            self.random.choice([self.alter, self.register, self.drop, self.invoke, self.acknowledge])()


def main() -> None:
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    with Rig(folder, ONE_FILE, SLACK).hub(1 + seed % 3, {}) as hub:
        for name, text in FIRST.items():
            if hub.catalog.query(name) is None:
                hub.register(text, name)
        say("open")
        Victim(hub, folder, seed).live()


if __name__ == "__main__":
    main()
