"""Chains of operators with the steepest fall of queued elements per unit of time, from the operators' times and selectivities.

A path of operators is a falling line over time: an element that has gone through the first operators has cost their times and is as
many elements as they leave. Its lower envelope divides the path into chains; none of them has an operator after which the fall is
steeper than over the whole chain.
Source: Babu (2005), section 4.3 (Chain); the proof that it is near optimal is in another paper.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PathOperator:
    """An operator of a path: units of time for a batch, and the elements that it leaves of each that enters it."""

    time: float
    passes: float

    def __post_init__(self) -> None:
        if self.time <= 0 or self.passes < 0:
            raise ValueError(f"an operator takes time and leaves no negative number of elements: {self}")


@dataclass(frozen=True, slots=True)
class Chain:
    """Operators `first` up to, not including, `end`, by which queued elements fall by `slope` per unit of time."""

    first: int
    end: int
    slope: float


def sizes_of(path: Sequence[PathOperator]) -> list[float]:
    """Elements that enter each operator for one that enters the first; at the end those that leave the last.

    What leaves the last operator is a result, and is in no queue: give it a `passes` of 0 to have it leave memory.
    """
    return [1.0, *np.multiply.accumulate([operator.passes for operator in path]).tolist()]


def chains(path: Sequence[PathOperator]) -> list[Chain]:
    """The chains of a path, steepest first: from each operator on, the operators up to the steepest fall; the longest of equal ones."""
    sizes, result = sizes_of(path), list[Chain]()
    first = 0
    while first < len(path):
        times = np.cumsum([operator.time for operator in path[first:]])
        slopes = (sizes[first] - np.asarray(sizes[first + 1 :])) / times
        length = len(slopes) - int(np.argmax(slopes[::-1]))
        result.append(Chain(first, first + length, float(slopes[length - 1])))
        first += length
    return result
