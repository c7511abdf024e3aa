"""The boxes of a part one after the other, as the compiled kernel of bitmaps takes them; made once per part."""

from __future__ import annotations

import numpy as np

from headrace.operators.base.group_codes import Ints
from headrace.operators.native.bitmaps import Factors
from headrace.operators.query_index.boxes.box_index import Part


def factors_of(part: Part) -> Factors:
    """The factors of all boxes: for each attribute that a box names, the bitmaps whose XOR are the rows it accepts.

    The bitmap without rows is left out, which changes no XOR.
    """
    attributes = part.attributes
    boxes = _joined([attribute.boxes for attribute in attributes])
    sizes = np.array([len(attribute.boxes) for attribute in attributes], np.int64)
    order = np.argsort(boxes, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    factors, bitmaps = list[Ints](), list[Ints]()
    for attribute, before in zip(attributes, (np.cumsum(sizes) - sizes).tolist(), strict=True):
        own = place[before : before + len(attribute.boxes)]
        every = np.arange(len(own))
        for which, numbers in [
            (every, attribute.first),
            (every, attribute.second),
            *attribute.more,
        ]:
            named = numbers != attribute.blank
            factors.append(own[which][named])
            bitmaps.append(numbers[named])
    owners = _joined(factors)
    return Factors(
        part.starts,
        _starts(boxes, part.boxes),
        np.repeat(np.arange(len(attributes)), sizes)[order],
        _starts(owners, len(order)),
        _joined(bitmaps)[np.argsort(owners, kind="stable")],
    )


def _joined(arrays: list[Ints]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *arrays])


def _starts(owners: Ints, count: int) -> Ints:
    """Where the entries of each owner begin, once sorted by owner, and the end."""
    starts: Ints = np.r_[0, np.cumsum(np.bincount(owners, minlength=count))].astype(np.int64)
    return starts
