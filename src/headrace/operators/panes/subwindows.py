"""Lengths of windows that INVOKE q [RANGE d] may read from an operator's state, and the panes of a shortened window."""

from __future__ import annotations

from dataclasses import replace

from headrace.dataclass import dataclass
from headrace.operators.panes.panes import Panes
from headrace.time import Duration


@dataclass(frozen=True, slots=True)
class Subwindows:
    """Lengths with which a window can be read: up to `longest`, its own; with `panes` only those that begin at one of its
    slides.

    `answers_empty`: windows without rows answer too; their lengths must leave no gaps.
    """

    longest: Duration
    panes: Panes | None = None
    answers_empty: bool = False


def shortened(panes: Panes, by: Duration) -> Panes:
    """The panes of windows that end where these do, and are shorter by some slides."""
    assert panes.back is not None
    return replace(panes, back=panes.back - by // panes.slide)
