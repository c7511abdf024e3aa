"""Ranges of ranks that boxes accept of one attribute: for most conditions all that a test of a row needs to compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints

if TYPE_CHECKING:
    from headrace.operators.query_index.boxes.box_index import AttributeIndex

_NARROW: Final = (1 << 16) - 1


@dataclass(frozen=True, slots=True, eq=False)
class BoxRanges:
    """By box, the ranks [`low`, `high`) of an attribute that it accepts, where these are one range (`is_range`).

    A box that does not name the attribute accepts all ranks, also that of NULL.
    """

    low: Ints
    high: Ints
    is_range: npt.NDArray[np.bool_]
    are_all: bool
    """Whether all boxes accept one range."""
    start_anywhere: bool
    """Whether some range does not begin with the first rank."""

    @staticmethod
    def of(attribute: AttributeIndex, boxes: int) -> BoxRanges:
        """The ranges of all boxes of a part."""
        first, second, blank, null = attribute.first, attribute.second, attribute.blank, attribute.null
        is_none, is_null = first == blank, (first == null) & (second == blank)
        is_range = ((first < blank) & (second != null)) | is_none | is_null
        for numbers, _ in attribute.more:
            is_range[numbers] = False
        kind = rank_type(attribute)
        low, high = np.zeros(boxes, kind), np.full(boxes, null + 1, kind)
        low[attribute.boxes] = np.where(is_none, 0, first)
        high[attribute.boxes] = np.where(is_none, 0, np.where(is_null, null + 1, second))
        of_all = np.ones(boxes, bool)
        of_all[attribute.boxes] = is_range
        return BoxRanges(low, high, of_all, bool(is_range.all()), bool(low[of_all].any()))

    def accept(self, boxes: Ints, ranks: Ints) -> npt.NDArray[np.bool_]:
        """Whether each box accepts the rank next to it, of boxes whose ranks are one range."""
        accepted: npt.NDArray[np.bool_] = ranks < self.high.take(boxes)
        if self.start_anywhere:
            accepted &= ranks >= self.low.take(boxes)
        return accepted


def rank_type(attribute: AttributeIndex) -> type[np.integer]:
    """The narrowest type used for ranks of an attribute: small columns stay in the cache, and are sorted by counting."""
    return np.uint16 if attribute.null < _NARROW else np.int64
