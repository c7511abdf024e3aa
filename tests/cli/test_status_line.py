"""The text of the progress line, on a terminal and elsewhere."""

from __future__ import annotations

import io

from headrace.cli.status_line import LiveLine
from headrace.observation import EpochObservation, OperatorObservation, StreamObservation
from headrace.time import HOUR


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Watch:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def seen(epoch: int, *, kind: str = "epoch", lag: int = HOUR) -> EpochObservation:
    return EpochObservation(
        epoch,
        kind,
        rows=1000,
        late=2,
        rejected=1,
        streams={"s": StreamObservation(rows=1000, late=2, rejected=1, punctuation=60_000_000, lag=lag)},
        operators={"q0": OperatorObservation(open_windows=7, rejected=1)},
        state_bytes=1_500_000,
    )


def test_a_terminal_has_one_line_that_is_rewritten() -> None:
    out, watch = Terminal(), Watch()
    line = LiveLine(out, clock=watch)
    watch.at = 0.5
    line.update(seen(1))
    line.update(seen(2, lag=10**15))
    line.warning("Look!")
    first, second, rest = out.getvalue().split("\r\x1b[2K")[1:]
    assert (
        first
        == "epoch 1 · 1,000 rows · 2,000 rows/s · 7 open windows · lag 1 hour · state 1.5 MB "[: len(first)]
    )
    assert "at 1970-01-01T00:01:00Z" in second
    assert rest == "Look!\n"


def test_elsewhere_a_line_is_printed_every_few_seconds() -> None:
    out, watch = io.StringIO(), Watch()
    line = LiveLine(out, clock=watch)
    for epoch in range(1, 13):
        watch.at = float(epoch)
        line.update(seen(epoch))
    printed = out.getvalue().splitlines()
    assert [text.split(" · ")[0] for text in printed] == ["epoch 5", "epoch 10"]
    assert printed[0].endswith("state 1.5 MB · 10 late · 10 rejected")


def test_rows_read_again_from_the_archive_are_not_counted_twice() -> None:
    line = LiveLine(io.StringIO(), quiet=True)
    line.update(seen(1))
    line.update(seen(2, kind="replay"))
    assert (line.rows, line.late, line.epochs) == (1000, 2, 2)


def test_quiet_leaves_only_warnings() -> None:
    out = io.StringIO()
    line = LiveLine(out, quiet=True, clock=Watch())
    line.update(seen(1))
    line.message("Starting")
    line.warning("1 row late")
    assert out.getvalue() == "1 row late\n"
