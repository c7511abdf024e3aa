"""Static analysis of load: measured costs of a row, rates through a network of boxes, the processing time that they need in a
second, and the rate at which that is all there is.

Rates pass through boxes uncapped, since a saturated box would hide the demand behind it. Source: Aurora (Carney et al. 2002,
TR 764-784): min_cap is the sum of rate times cost, and a part of the capacity, the headroom, is to be left free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, inf
from typing import Final

from headrace.dataclass import dataclass

MEMORY_SECONDS: Final = 60.0
"""After so long a measurement counts for 1/e."""
_VARIED: Final = 0.05
"""Variance of the rows of an epoch, by the square of their mean, from which on the cost of rows is separated from that of an epoch."""
_SLOW: Final = 2.0
"""An epoch that takes so many times what the line predicts is slow."""
_KNOWN: Final = 4.0
"""Weight from which on a line is known well enough to call an epoch slow."""
_BOTH: Final = 0.02
"""Variance of whether windows close, from which on the cost of closing them is separated: one epoch in fifty, or all but so many."""
_APART: Final = 0.05
"""The least part of that variance that the rows of epochs do not explain: with less, the two costs cannot be separated."""


@dataclass(frozen=True, slots=True)
class CostLine:
    """What rows cost, from epochs of different sizes: seconds = fixed + rows x cost, by least squares; older ones count less.

    Epochs in which windows close take longer. Of small ones that is the more often so the more rows they have, which is no cost
    of these rows: in a large epoch, many windows close together. So `closing` is the third term, for such epochs.
    Sums over epochs: their weight, rows, seconds, rows squared, and rows times seconds; weight, rows and seconds of those in which
    windows close. What a slow epoch takes beyond the
    line is in `excess` instead of `seconds`: it counts as cost of epochs, not of rows, since least squares would let one
    pause of the machine turn the line. `last`, `last_rows` and `last_closed` are those of the last epoch, if it was slow.
    """

    weight: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    excess: float = 0.0
    last: float = 0.0
    last_rows: float = 0.0
    closed: float = 0.0
    closed_rows: float = 0.0
    closed_seconds: float = 0.0
    last_closed: bool = False

    def after(self, rows: float, seconds: float, elapsed: float, *, closes: bool = False) -> CostLine:
        """With one more epoch, which took so many seconds, so long after the last one; `closes` if windows closed in it.

        With a second slow epoch in sequence the cost of rows has changed: both count as any other.

        >>> line = CostLine()
        >>> for rows in (100, 1100, 100, 1100):
        ...     line = line.after(rows, 1 + 0.002 * rows, 0)
        >>> paused = line.after(100, 60.0, 0)
        >>> round(paused.per_row, 9), round(paused.fixed, 2), paused.after(100, 60.0, 0).per_row
        (0.002, 12.76, 0.0)
        """
        faded = exp(-max(0.0, elapsed) / MEMORY_SECONDS)
        known = self.weight * faded >= _KNOWN
        predicted = self.expected(rows, closes=closes) if known else inf
        excess = seconds - predicted if 0 < _SLOW * predicted < seconds else 0.0
        late = self.last * faded if excess else 0.0
        if late:
            excess = 0.0
        return CostLine(
            self.weight * faded + 1,
            self.rows * faded + rows,
            self.seconds * faded + seconds - excess + late,
            self.squares * faded + rows * rows,
            self.products * faded + rows * (seconds - excess) + self.last_rows * late,
            max(0.0, self.excess * faded + excess - late),
            excess,
            rows if excess else 0.0,
            self.closed * faded + closes,
            self.closed_rows * faded + closes * rows,
            self.closed_seconds * faded + closes * (seconds - excess) + self.last_closed * late,
            closes and excess > 0,
        )

    def expected(self, rows: float, *, closes: bool) -> float:
        """The seconds of an epoch with so many rows, by the line."""
        if not self.weight:
            return 0.0
        per_row, closing = self._slopes()
        spent = self.seconds + self.excess - per_row * self.rows
        return max(0.0, spent - closing * self.closed) / self.weight + per_row * rows + closing * closes

    @property
    def per_row(self) -> float:
        """Seconds that one more row costs; of all epochs together where these have about the same size.

        >>> CostLine().after(100, 1.2, 0).after(1100, 3.2, 0).per_row
        0.002
        """
        return self._slopes()[0]

    @property
    def closing(self) -> float:
        """Seconds that an epoch takes longer when windows close in it, however many; 0 where that cannot be separated from the cost of its rows.

        >>> line = CostLine()
        >>> for rows, closes in ((100, False), (300, True), (300, False), (900, False), (900, True)):
        ...     line = line.after(rows, 1 + 0.002 * rows + 0.5 * closes, 0, closes=closes)
        >>> round(line.closing, 9), round(line.per_row, 9)
        (0.5, 0.002)
        """
        return self._slopes()[1]

    def _slopes(self) -> tuple[float, float]:
        """Seconds of one more row, and of closing windows."""
        weight, rows = self.weight, self.rows
        if not rows:
            return 0.0, 0.0
        mean, whole = rows / weight, (self.seconds + self.excess) / rows
        variance = self.squares / weight - mean * mean
        if variance <= _VARIED * mean * mean:
            return whole, 0.0
        covariance, closing = self.products / weight - mean * self.seconds / weight, 0.0
        share = self.closed / weight
        own = share * (1 - share)
        if own >= _BOTH:
            together = self.closed_rows / weight - mean * share
            apart = variance * own - together * together
            if apart >= _APART * variance * own:
                seconds = self.closed_seconds / weight - share * self.seconds / weight
                closing = max(0.0, (seconds * variance - covariance * together) / apart)
                covariance -= closing * together
        return min(whole, max(covariance / variance, 0.0)), closing

    @property
    def fixed(self) -> float:
        """Seconds that an epoch takes besides its rows; 0 where epochs have about the same size.

        >>> round(CostLine().after(100, 1.2, 0).after(1100, 3.2, 0).fixed, 9)
        1.0
        """
        spent = self.seconds + self.excess
        return max(0.0, (spent - self.per_row * self.rows) / self.weight) if self.weight else 0.0

    def as_json(self) -> list[float]:
        """The sums; the constructor takes them back."""
        sums = [self.weight, self.rows, self.seconds, self.squares, self.products]
        of_last = [self.excess, self.last, self.last_rows]
        return [*sums, *of_last, self.closed, self.closed_rows, self.closed_seconds, self.last_closed]


@dataclass(frozen=True, slots=True)
class Box:
    """A piece of work: seconds for each row of its input, rows of output for each of input, and what feeds it.

    `inputs` are names of streams or of boxes before it; `share` is the part of their rows that it gets.
    """

    name: str
    seconds_per_row: float
    inputs: tuple[str, ...]
    selectivity: float = 1.0
    share: float = 1.0


def needed(boxes: Sequence[Box], rates: Mapping[str, float]) -> float:
    """Seconds of processing in a second, at these rows per second by stream; boxes are in the order of the data.

    >>> boxes = [Box("read", 1e-6, ("s",)), Box("filter", 1e-5, ("read",), 0.1), Box("fold", 1e-4, ("filter",))]
    >>> round(needed(boxes, {"s": 10_000}), 6)
    0.21
    """
    through, total = dict(rates), 0.0
    for box in boxes:
        rate = sum(through.get(name, 0.0) for name in box.inputs) * box.share
        total += rate * box.seconds_per_row
        through[box.name] = rate * box.selectivity
    return total


def saturation(boxes: Sequence[Box], rates: Mapping[str, float]) -> float:
    """By which factor these rates may grow until all of every second is needed; infinite where nothing is."""
    load = needed(boxes, rates)
    return 1 / load if load > 0 else inf


def mixed(rates: Mapping[str, float], streams: Iterable[str]) -> Mapping[str, float]:
    """The rates, or equal ones where no row has arrived lately: a saturation is then that of a mix of all streams."""
    return rates if any(rates.values()) else dict.fromkeys(streams, 1.0)
