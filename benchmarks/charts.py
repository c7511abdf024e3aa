"""What is to be drawn, without how: bars, curves, and several of them in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """One measurement; `kind` is ours, theirs or yardstick and chooses the colour."""

    label: str
    value: float
    kind: str


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars with their values in `unit`."""

    title: str
    unit: str
    drawn: Sequence[Bar]
    logarithmic: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """Measurements over a quantity that varies; `kind` is ours, theirs or yardstick and chooses the colour."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    kind: str


@dataclass(frozen=True, slots=True)
class Curves:
    """Several curves; `axes` names what runs across and up, `logarithmic` which of them by powers of ten."""

    title: str
    axes: tuple[str, str]
    drawn: Sequence[Curve]
    logarithmic: tuple[bool, bool] = (False, False)


@dataclass(frozen=True, slots=True)
class Grid:
    """Charts in one picture, two in a row."""

    title: str
    charts: Sequence[Bars | Curves]


Chart = Bars | Curves | Grid
