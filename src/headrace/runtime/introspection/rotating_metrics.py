"""Round-robin logging of operator metrics: a line of the epoch log has a bounded number of operators; and the sums of each
operator from such lines.

An operator is logged when it is first measured, and then in rotation, with the sums of all epochs since it was last
logged. So a line does not grow with the number of operators, and no measurement is left out: as many lines as the rotation
takes have all operators. Where epochs are frequent for long, lines get shorter: fifty epochs a second of a hundred operators
would be a megabyte of lines a second, and a tenth of the epochs' time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain, islice
from typing import Any, Final

from headrace.dataclass import dataclass
from headrace.observation import EpochObservation, OperatorObservation
from headrace.runtime.messages.operator_observations import OperatorObservations, added

MOST: Final = 512
"""Operators of a line, besides new ones."""
A_SECOND: Final = 1 << 10
"""Operators of the lines of a second, on average, once `_AHEAD` are logged beyond that."""
_AHEAD: Final = 1 << 14
_MOST_LINES: Final = 16
"""In so many lines each of a few hundred operators is logged, however frequent they are: readers take the last twenty."""


@dataclass(slots=True)
class RotatingMetrics:
    """Makes the log's lines from observations; at most `most` operators a line, and those never logged before."""

    most: int = MOST
    _left: float = _AHEAD
    """Operators that may be logged now."""
    _at: float = 0.0
    _epochs: deque[OperatorObservations] = field(default_factory=deque)
    """The newest epochs, back to the first of which an operator waits."""
    _next: int = 0
    """Number of the next epoch."""
    _since: dict[str, int] = field(default_factory=dict)
    """The epoch from which on an operator waits to be logged, the longest waiting first."""
    _logged: set[str] = field(default_factory=set)

    def line(self, seen: EpochObservation, now: float = 0.0) -> dict[str, object]:
        """The fields of `EpochObservation.as_dict`. `omitted_operators`: how many operators are not in the line, if any.

        The figures of an operator that was not logged in each epoch are sums over its own number of `epochs`. `now` in seconds.
        """
        self._left, self._at = min(_AHEAD, max(0.0, self._left) + (now - self._at) * A_SECOND), now
        most = min(self.most, max(-(-len(seen.operators) // _MOST_LINES), int(self._left)))
        new = [name for name in seen.operators if name not in self._logged]
        if len(self._logged) > 2 * (len(seen.operators) + self.most):
            self._logged.intersection_update(seen.operators, self._since)
        self._logged.update(new)
        if len(seen.operators) <= most and not self._since:
            self._left -= len(seen.operators)
            return seen.as_dict()
        self._add(seen.operators)
        due = [*new, *islice(self._since, max(0, most - len(new)))]
        shown = self._taken(dict.fromkeys(due))
        self._left -= len(shown)
        line = replace(
            seen,
            operators={name: observation for name, (observation, _) in shown.items()},
            delays={name: delays for name, delays in seen.delays.items() if name in shown},
        ).as_dict()
        metrics: Any = line["operators"]
        for name, (_, epochs) in shown.items():
            if epochs > 1:
                metrics[name]["epochs"] = epochs
        return {**line, "omitted_operators": sum(name not in shown for name in seen.operators)}

    def _add(self, operators: Mapping[str, OperatorObservation]) -> None:
        """Keep an epoch until all of its operators are logged: it is added to others for these alone, a few at a time."""
        self._epochs.append(OperatorObservations.of(operators))
        for name in operators:
            self._since.setdefault(name, self._next)
        self._next += 1

    def _taken(self, names: Iterable[str]) -> dict[str, tuple[OperatorObservation, int]]:
        """The sums of operators over the epochs in which they have waited, and the number of these."""
        since = {name: self._since.pop(name) for name in names}
        first = self._next - len(self._epochs)
        observed = [
            epoch.some(name for name, waits_from in since.items() if waits_from <= number)
            for number, epoch in enumerate(self._epochs, first)
        ]
        total, epochs = added(observed), Counter(chain.from_iterable(observed))
        for _ in range(next(iter(self._since.values()), self._next) - first):
            self._epochs.popleft()
        return {name: (total[name], epochs[name]) for name in since}


def lines_per_rotation(operators: int, most: int = MOST) -> int:
    """How many lines it takes to log so many operators once."""
    return -(-operators // most)


def of_operators(
    lines: Sequence[Mapping[str, Any]], names: Iterable[str]
) -> dict[str, tuple[OperatorObservation, int]]:
    """Metrics of some operators in lines: the sums over all their epochs, and the rows of state at the end.

    Epochs before the lines, or in which an operator was not logged yet, count with the mean of the others.
    """
    selected, backlog = frozenset(names), any(line.get("omitted_operators") for line in lines)
    sums: dict[str, _Sum] = {}
    for number, line in enumerate(lines):
        for name, counters in line["operators"].items():
            if name in selected:
                observation = OperatorObservation(
                    **{measure: counters.get(measure, 0) for measure in OperatorObservation._fields}
                )
                epochs = counters.get("epochs", 1)
                spans = min(len(lines), len(lines) - number - 1 + epochs)
                sums.setdefault(name, _Sum(spans)).add(observation, epochs)
    return {
        name: (total.over_all() if backlog else total.observation, total.state_rows)
        for name, total in sums.items()
    }


@dataclass(slots=True)
class _Sum:
    """Sum of `epochs` epochs of an operator that ran in `spans`; its last `state_rows`."""

    spans: int
    observation: OperatorObservation = field(default_factory=OperatorObservation)
    epochs: int = 0
    state_rows: int = 0

    def add(self, observation: OperatorObservation, epochs: int) -> None:
        self.observation, self.epochs = self.observation.plus(observation), self.epochs + epochs
        self.state_rows = observation.state_rows // epochs

    def over_all(self) -> OperatorObservation:
        if self.spans == self.epochs:
            return self.observation
        measures = (getattr(self.observation, measure) for measure in OperatorObservation._fields)
        return OperatorObservation(*(measure * self.spans // self.epochs for measure in measures))
