"""Progress of epochs on one line of stderr: rewritten in place on a terminal, printed every few seconds elsewhere;
messages and warnings are lines of their own between.
"""

from __future__ import annotations

import shutil
import threading
import time as stopwatch
from collections import deque
from collections.abc import Callable
from typing import Final, TextIO

from headrace.observation import EpochFailure, EpochObservation
from headrace.time import BEGINNING, DAY, FOREVER, render_duration, render_instant

_EVERY_SECONDS: Final = 5.0
_RATE_EPOCHS: Final = 12
_CLEAR: Final = "\r\x1b[2K"


class LiveLine:
    """Shows every epoch (`update`, from any thread); `message` prints a line of text without tearing it."""

    def __init__(
        self, stream: TextIO, *, quiet: bool = False, clock: Callable[[], float] = stopwatch.monotonic
    ) -> None:
        self._stream, self._quiet, self._clock = stream, quiet, clock
        self._live = stream.isatty()
        self._lock = threading.Lock()
        self._shown = False
        self._printed = clock()
        self._recent: deque[tuple[float, int]] = deque([(clock(), 0)], maxlen=_RATE_EPOCHS)
        self.rows = self.late = self.rejected = self.epochs = 0

    def update(self, seen: EpochObservation) -> None:
        """Count an epoch and show the progress."""
        with self._lock:
            self.epochs += 1
            if seen.kind not in (
                "replay",
                "fill",
                "repair",
            ):  # these rows were counted when they were first read
                self.rows += seen.rows
                self.late += seen.late
                self.rejected += seen.rejected
            self.rejected += sum(operator.rejected for operator in seen.operators.values())
            now = self._clock()
            self._recent.append((now, seen.rows))
            if self._quiet:
                return
            if self._live:
                columns = shutil.get_terminal_size().columns
                self._stream.write(_CLEAR + self.line(seen)[: columns - 1])
                self._shown = True
            elif now - self._printed >= _EVERY_SECONDS:
                self._printed = now
                self._stream.write(self.line(seen) + "\n")
            self._stream.flush()

    def failed(self, failure: EpochFailure) -> None:
        """Print a permanent line, also when quiet: an attempt failed, and another follows. The error of the last is raised."""
        if failure.retry_after is not None:
            self.warning(
                f"Epoch {failure.epoch} failed ({failure.message.splitlines()[0]}); "
                f"attempt {failure.attempt + 1} of {failure.attempts} in {failure.retry_after:g} s."
            )

    def line(self, seen: EpochObservation) -> str:
        """Rows, rows/s, open windows, punctuation or lag, state, late and rejected rows."""
        parts = [f"epoch {seen.epoch}" + (f" ({seen.kind})" if seen.kind != "epoch" else "")]
        parts += [f"{self.rows:,} rows", f"{self.rate():,.0f} rows/s"]
        windows = sum(operator.open_windows for operator in seen.operators.values())
        if windows:
            parts.append(f"{windows:,} open windows")
        if (progress := _progress(seen)) is not None:
            parts.append(progress)
        parts.append(f"state {seen.state_bytes / 1e6:.1f} MB")
        parts += [
            f"{count:,} {what}" for count, what in ((self.late, "late"), (self.rejected, "rejected")) if count
        ]
        return " · ".join(parts)

    def rate(self) -> float:
        """Rows a second over the last epochs."""
        spent = self._recent[-1][0] - self._recent[0][0]
        rows = sum(rows for _, rows in list(self._recent)[1:])
        return rows / spent if spent > 0 else 0.0

    def message(self, text: str) -> None:
        """Print a permanent line, unless quiet."""
        if not self._quiet:
            self.warning(text)

    def warning(self, text: str) -> None:
        """Print a permanent line, also when quiet."""
        with self._lock:
            self._wipe()
            self._stream.write(text + "\n")
            self._stream.flush()

    def clear(self) -> None:
        """Remove the live line, before something else is printed."""
        with self._lock:
            self._wipe()
            self._stream.flush()

    def _wipe(self) -> None:
        if self._shown:
            self._stream.write(_CLEAR)
            self._shown = False


def _progress(seen: EpochObservation) -> str | None:
    """The lag of the stream with the lowest punctuation; for data of long ago its event time."""
    progress = [
        (stream.punctuation, stream.lag)
        for stream in seen.streams.values()
        if stream.punctuation is not None and BEGINNING < stream.punctuation < FOREVER
    ]
    if not progress:
        return None
    at, lag = min(progress)
    if lag is None or lag > DAY:
        return f"at {render_instant(at)}"
    return f"lag {render_duration(max(lag, 0) // 1_000_000 * 1_000_000).lower()}"
