"""Errors of expressions by row; the texts of reasons are made only when they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from headrace.dataclass import dataclass
from headrace.operators.scalar.values.datum import Bools, Failure


@dataclass(frozen=True, slots=True)
class Errors:
    """Failed rows; the first of `parts` that contains a row has its reason."""

    mask: Bools
    parts: tuple[Failure, ...]

    @property
    def reasons(self) -> Mapping[int, str]:
        """The first reason of each failed row."""
        return _Reasons(self)

    def within(self, rows: Bools) -> Errors | None:
        """The errors on the rows in `rows`; None if there are none."""
        mask = self.mask & rows
        return Errors(mask, self.parts) if mask.any() else None

    @staticmethod
    def of(failure: Failure | None) -> Errors | None:
        """The errors of one failure."""
        return None if failure is None else Errors(failure.mask, (failure,))

    @staticmethod
    def everywhere(rows: int, reason: str) -> Errors | None:
        """The same error on every row."""
        return Errors.of(Failure(np.ones(rows, np.bool_), lambda _: reason)) if rows else None


def both(first: Errors | None, then: Errors | None) -> Errors | None:
    """The errors of both; reasons of the first take precedence."""
    if first is None or then is None or first is then:
        return first or then
    narrowed = tuple(Failure(part.mask & first.mask, part.describe) for part in first.parts)
    later = tuple(Failure(part.mask & then.mask, part.describe) for part in then.parts)
    return Errors(first.mask | then.mask, narrowed + later)


class _Reasons(Mapping[int, str]):
    def __init__(self, errors: Errors) -> None:
        self._errors = errors

    def __getitem__(self, row: int) -> str:
        if not self._errors.mask[row]:
            raise KeyError(row)
        return next(part.describe(row) for part in self._errors.parts if part.mask[row])

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self._errors.mask).tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self._errors.mask))
