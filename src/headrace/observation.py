"""What one epoch measured: frozen facts that feed status, logs and the next plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace


@dataclass(frozen=True, slots=True)
class StreamObservation:
    """One stream in one epoch. Rows are rows; `lag` is the arrival clock minus the punctuation, in microseconds."""

    rows: int = 0
    bytes: int = 0
    late: int = 0
    rejected: int = 0
    punctuation: int | None = None
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class OperatorObservation:
    """One operator in one epoch: rows offered and kept by its filter, delta and state rows, results, open windows."""

    rows_in: int = 0
    rows_kept: int = 0
    delta_rows: int = 0
    state_rows: int = 0
    results: int = 0
    rejected: int = 0
    open_windows: int = 0

    def plus(self, other: OperatorObservation) -> OperatorObservation:
        """What two tasks have measured."""
        return OperatorObservation(
            self.rows_in + other.rows_in,
            self.rows_kept + other.rows_kept,
            self.delta_rows + other.delta_rows,
            self.state_rows + other.state_rows,
            self.results + other.results,
            self.rejected + other.rejected,
            self.open_windows + other.open_windows,
        )

    def __reduce__(self) -> tuple[type, tuple[int, ...]]:
        """Thousands travel from every task: named fields, pickled one by one, would be most of what travels."""
        return OperatorObservation, (
            self.rows_in,
            self.rows_kept,
            self.delta_rows,
            self.state_rows,
            self.results,
            self.rejected,
            self.open_windows,
        )

    @property
    def selectivity(self) -> float | None:
        """Share of offered rows that were kept; None when none were offered."""
        return self.rows_kept / self.rows_in if self.rows_in else None


@dataclass(frozen=True, slots=True)
class EpochObservation:
    """All that one epoch measured. Times are seconds of wall clock per stage; bytes are bytes on disk."""

    epoch: int
    kind: str
    rows: int = 0
    bytes: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    streams: Mapping[str, StreamObservation] = field(default_factory=dict)
    operators: Mapping[str, OperatorObservation] = field(default_factory=dict)
    state_bytes: int = 0
    state_runs: int = 0

    def as_dict(self) -> dict[str, object]:
        """Plain JSON-able values, for the line-JSON log."""
        names = OperatorObservation.__slots__
        operators = {
            name: {measure: getattr(seen, measure) for measure in names}
            for name, seen in self.operators.items()
        }
        return {**asdict(replace(self, operators={})), "operators": operators}


@dataclass(frozen=True, slots=True)
class EpochFailure:
    """An attempt at an epoch that failed: the `attempt`-th of at most `attempts`.

    `error` is the error's type, `incarnation` the driver's, `at` an instant. The next attempt comes after `retry_after`
    seconds; None: there is none.
    """

    epoch: int
    attempt: int
    attempts: int
    error: str
    message: str
    incarnation: int
    at: int
    retry_after: float | None

    def as_dict(self) -> dict[str, object]:
        """Plain JSON-able values, of kind "failure" among those of epochs."""
        return {"kind": "failure", **asdict(self)}
