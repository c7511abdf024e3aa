"""Ratios between measurements, each with the threshold that it has to hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.expected import WrongAnswer
from benchmarks.runs import Series


@dataclass(frozen=True, slots=True)
class Ratio:
    """`value` has to be at least (or, with `at_most`, at most) `bound`."""

    what: str
    value: float
    bound: float
    at_most: bool = False

    @property
    def passed(self) -> bool:
        return bool(self.value <= self.bound if self.at_most else self.value >= self.bound)

    def __str__(self) -> str:
        sign = "≤" if self.at_most else "≥"
        return f"{'PASS' if self.passed else 'FAIL'}  {self.what}: {self.value:.2f} ({sign} {self.bound:g})"

    def as_dict(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "value": round(float(self.value), 3),
            "at_most" if self.at_most else "at_least": self.bound,
            "passed": self.passed,
        }


def rate_of(series: Iterable[Series], contender: str, task: str) -> float:
    """Median rows a second of one contender at one task."""
    return best_rate(series, (contender,), task)


def best_rate(series: Iterable[Series], contenders: Collection[str], task: str) -> float:
    """The rate of the fastest of some contenders; `WrongAnswer` when none of them has a right answer."""
    rates = [one.rate for one in series if one.contender in contenders and one.task == task]
    if not rates:
        raise WrongAnswer(f"Expected a right answer of {' or '.join(contenders)} at {task}, found none.")
    return max(rates)
