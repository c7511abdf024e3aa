"""What does the log of epochs say of each operator when there are thousands? Of so many at a time, in turn.

An operator is told of when it was first measured, and then when its turn comes, with the sums of all epochs since it was
told of last. So a line does not grow with the number of operators, and none of what was measured is left out: a reader of
as many lines as there are turns has all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from headrace.observation import EpochObservation, OperatorObservation

MOST: Final = 512
"""Operators that a line tells of, beside those that are new."""


@dataclass(slots=True)
class RotatingMetrics:
    """Makes the log's lines from observations; at most `most` operators a line, and those it has never told of."""

    most: int = MOST
    _waiting: dict[str, tuple[OperatorObservation, int]] = field(default_factory=dict)
    """Sums and their number of epochs since an operator was told of, in the order of that."""
    _known: set[str] = field(default_factory=set)

    def line(self, seen: EpochObservation) -> dict[str, object]:
        """The fields of `EpochObservation.as_dict`. Where not all operators are told of, `omitted_operators` says how many are not.

        The figures of an operator that was not told of in each epoch are sums over as many as its own `epochs` says.
        """
        new = [name for name in seen.operators if name not in self._known]
        if len(self._known) > 2 * (len(seen.operators) + self.most):
            self._known.intersection_update(seen.operators, self._waiting)
        self._known.update(new)
        if len(seen.operators) <= self.most and not self._waiting:
            return seen.as_dict()
        for name, own in seen.operators.items():
            known = self._waiting.get(name)
            self._waiting[name] = (own, 1) if known is None else (known[0].plus(own), known[1] + 1)
        due = [*new, *islice(self._waiting, max(0, self.most - len(new)))]
        shown = {name: self._waiting.pop(name) for name in dict.fromkeys(due)}
        line = replace(seen, operators={name: own for name, (own, _) in shown.items()}).as_dict()
        own_lines: Any = line["operators"]
        for name, (_, epochs) in shown.items():
            if epochs > 1:
                own_lines[name]["epochs"] = epochs
        return {**line, "omitted_operators": len(seen.operators.keys() - shown.keys())}


def lines_per_rotation(operators: int, most: int = MOST) -> int:
    """How many lines tell of all of so many operators."""
    return -(-operators // most)


def of_operators(
    lines: Sequence[Mapping[str, Any]], names: Iterable[str]
) -> dict[str, tuple[OperatorObservation, int]]:
    """What lines say of some operators: the sums over all their epochs, and the rows of state at the end.

    Of epochs in which an operator was not told of yet, or that lie before the lines, the mean of the others stands in.
    """
    wanted, backlog = frozenset(names), any(line.get("omitted_operators") for line in lines)
    found: dict[str, _Sum] = {}
    for place, line in enumerate(lines):
        for name, told in line["operators"].items():
            if name in wanted:
                own = OperatorObservation(
                    **{each: told.get(each, 0) for each in OperatorObservation.__slots__}
                )
                epochs = told.get("epochs", 1)
                spans = min(len(lines), len(lines) - place - 1 + epochs)
                found.setdefault(name, _Sum(spans)).add(own, epochs)
    return {name: (each.over_all() if backlog else each.own, each.state_rows) for name, each in found.items()}


@dataclass(slots=True)
class _Sum:
    """`own` over `epochs` epochs of an operator that ran in `spans`, as far as lines tell; its last `state_rows`."""

    spans: int
    own: OperatorObservation = field(default_factory=OperatorObservation)
    epochs: int = 0
    state_rows: int = 0

    def add(self, own: OperatorObservation, epochs: int) -> None:
        self.own, self.epochs = self.own.plus(own), self.epochs + epochs
        self.state_rows = own.state_rows // epochs

    def over_all(self) -> OperatorObservation:
        if self.spans == self.epochs:
            return self.own
        measures = (getattr(self.own, each) for each in OperatorObservation.__slots__)
        return OperatorObservation(*(each * self.spans // self.epochs for each in measures))
