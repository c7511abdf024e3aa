"""Peers that `standing` is compared with: how long queries of Flink SQL and of Spark take for ten rows, and how many answers they have to give."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks import folders
from benchmarks.environments import python_of, settings_of
from benchmarks.expected import WrongAnswer
from benchmarks.runs import run_watched

ROWS, KEYS = 10, 5
"""Rows of a stream a second of event time, and their keys in turn."""
_OF_WINDOWS = frozenset({"tumbling", "sliding", "percentile"})


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer with what it can run. The first `warm_up` seconds of event time are not counted, the `epochs` after them are."""

    name: str
    package: str
    kinds: tuple[str, ...]
    numbers: tuple[int, ...]
    warm_up: int
    epochs: int
    slide_of_ranges: int = 1
    """Ranges of sliding windows are multiples of so many seconds: the next greater ones."""
    closes_at_end: bool = True
    """Whether the end of the rows closes all windows."""

    @property
    def seconds(self) -> int:
        """Of event time, in all."""
        return self.warm_up + self.epochs


PEERS = (
    Peer(
        "Flink SQL, nothing durable",
        "flink",
        ("tumbling", "sliding", "range", "rows", "partitions", "percentile", "joins"),
        (1, 10, 100),
        100,
        30,
        slide_of_ranges=5,
    ),
    Peer(
        "Spark, query by query",
        "spark",
        ("tumbling", "sliding", "percentile", "joins"),
        (1, 10),
        3,
        7,
        closes_at_end=False,
    ),
)


def milliseconds(peer: Peer, kind: str, count: int) -> float:
    """Median from ten rows of each stream to the last answer of so many queries.

    Raises `NotHere`, `RunFailed`, and `WrongAnswer` for another number of answers than there should be.
    """
    scratch = folders.fresh("standing-peer")
    module = f"benchmarks.peers.{peer.package}.standing"
    arguments = (kind, count, peer.warm_up, peer.epochs, scratch / "made")
    command = [str(python_of(peer.package)), "-m", module, *map(str, arguments)]
    said, _ = run_watched(command, scratch, environment=settings_of(peer.package))
    least, most = answers(peer, kind, count)
    if not least <= said["answers"] <= most:
        raise WrongAnswer(
            f"Expected {least:,} to {most:,} answers of {count:,} queries of {peer.name}, {kind}, found {said['answers']:,}."
        )
    return median(said["waits_ms"])


def answers(peer: Peer, kind: str, count: int) -> tuple[int, int]:
    """The least and the greatest number of answers of so many queries: windows that the last rows close may be open."""
    if kind not in _OF_WINDOWS and kind != "joins":
        exact = count * peer.seconds * ROWS
        return exact, exact
    ranges = [10 + number % 50 for number in range(count)]
    if kind == "joins":
        exact = sum(_pairs(seconds, peer.seconds) for seconds in ranges)
        return exact, exact
    slide = 10 if kind == "tumbling" else 5
    lengths = [
        10 if kind == "tumbling" else -(-seconds // peer.slide_of_ranges) * peer.slide_of_ranges
        for seconds in ranges
    ]
    keys = 1 if kind == "percentile" else KEYS
    most = keys * sum(_windows(length, slide, peer.seconds, None) for length in lengths)
    least = keys * sum(_windows(length, slide, peer.seconds, peer.seconds - 2) for length in lengths)
    return (most if peer.closes_at_end else least), most


def _windows(length: int, slide: int, seconds: int, until: int | None) -> int:
    """The windows that hold a row of the first seconds and end by `until`; None: at any time."""
    starts = np.arange(-(-(1 - length) // slide) * slide, seconds, slide)
    return len(starts) if until is None else int((starts + length <= until).sum())


def _pairs(seconds: int, of: int) -> int:
    """Pairs of rows of two streams with the same key, with at most so many seconds between them."""
    tenths = np.arange(of * ROWS)
    between = np.abs(tenths[:, None] - tenths[None, :])
    has_same_key = tenths[:, None] % KEYS == tenths[None, :] % KEYS
    return int((has_same_key & (between <= 10 * seconds)).sum())
