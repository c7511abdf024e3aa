"""Cost model of the ways to make windows of panes, and the rows per group and window from which folding into panes
pays.

The model of Li 2008, section 6.3, for windows that are answered together, in cells read or combined per group: of equations
6.1 to 6.3 the term of the window level, since only that differs between the ways. Corrected: the printed 6.1 and 6.2 charge
a window all its panes, 6.2 for a slide of one pane only; windows that close together share most of that work.
"""

from __future__ import annotations

from typing import Final
from typing import Literal as Choice

from headrace.dataclass import dataclass
from headrace.operators.panes.panes import Panes

Way = Choice["each", "blocks", "rolling", "differences"]
MOST_WINDOWS: Final = 512
"""The most windows that are made together from blocks."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cells per group for windows made together, by way.

    `each`: every pane is repeated for every window that holds it, as WID without panes does with rows (6.3). `blocks`:
    the interval shared by the windows once from dyadic blocks, the rest accumulated from both sides (6.1). `rolling`:
    each window is the tail of one interval of panes and the head of the next. `differences`: running totals, a window
    being the later less the earlier; for aggregates that can be subtracted (6.2).
    """

    each: float
    blocks: float
    rolling: float
    differences: float

    def least(self, *, subtracts: bool) -> Way:
        """The cheapest way; among equals the plainest."""
        rolled: tuple[float, Way] = (
            (self.differences, "differences") if subtracts else (self.rolling, "rolling")
        )
        ways: list[tuple[float, Way]] = [(self.each, "each"), (self.blocks, "blocks"), rolled]
        return min(ways, key=lambda pair: pair[0])[1]

    def rolls(self, *, subtracts: bool) -> bool:
        """Whether a dense table over all the panes, of either kind, is cheapest."""
        return self.least(subtracts=subtracts) in ("rolling", "differences")


def cost(panes: Panes, windows: int) -> Cost:
    """The cost of `windows` windows that close together; not for landmark windows, which have no first pane."""
    held = panes.per_window
    assert held is not None
    assert panes.back is not None
    stepped = (windows - 1) * panes.per_slide
    together = min(windows, panes.back, MOST_WINDOWS)
    sides = 2 * (together - 1) * panes.per_slide
    shared = 2 * max(0, held - sides // 2).bit_length()
    blocks = windows / together * (2 * sides + shared) + 2 * windows
    span = held + stepped
    if held == 1:
        return Cost(2 * windows, blocks, span, span)
    return Cost(2 * windows * held, blocks, 3 * span + windows, 2 * span + windows)


def rows_for_panes_to_pay(panes: Panes) -> float:
    """The rows of a group in a window from which panes pay: a row is then folded once, and not into each window.

    From 6.1 = 6.3 with a fold, a pane's cell and a combination at one price: T > slides' cells + windows' cells, over
    the share of folds that panes save. Infinite if a window is one pane, where panes change nothing.
    """
    held = panes.per_window
    if held is None:
        return 1.0
    if held == 1:
        return float("inf")
    assert panes.back is not None
    many = cost(panes, MOST_WINDOWS)
    return (panes.per_slide + min(many.each, many.blocks, many.rolling) / MOST_WINDOWS) / (1 - 1 / panes.back)
