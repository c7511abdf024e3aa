"""Joins and arrivals of the thesis' examples (Babu 2005, figure 6.8 and section 6.10), and rows in a short form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.models.constraints.constrained_mjoin import ConstrainedMJoin
from benchmarks.models.constraints.join_graph import JoinGraph, ManyOne
from benchmarks.models.constraints.synopsis import NO, UNKNOWN, YES, Arrivals

STAR = JoinGraph((ManyOne("S1", "S2", "A", "A"), ManyOne("S1", "S3", "B", "B")))
CHAIN = JoinGraph((ManyOne("S1", "S2", "B", "B"), ManyOne("S2", "S3", "C", "C")))
STAR_COLUMNS = {"S1": ("A", "B"), "S2": ("A", "C"), "S3": ("B", "D")}
CHAIN_COLUMNS = {"S1": ("A", "B"), "S2": ("B", "C"), "S3": ("C", "D")}
WORDS = {YES: "Yes", NO: "No", UNKNOWN: "Unknown"}


@dataclass
class Played:
    """A join into which rows are put one at a time; `rows` are all that came, by place."""

    join: ConstrainedMJoin
    rows: list[tuple[int, ...]] = field(default_factory=list)

    def put(self, stream: str, row: Sequence[int], *, passes: bool = True) -> list[tuple[int, ...]]:
        """Take in a row; the results that it makes, as rows of all streams by name."""
        place = len(self.rows)
        self.rows.append(tuple(row))
        columns = {name: np.array([value]) for name, value in zip(self.join.keys[stream], row, strict=True)}
        before = len(self.join.results)
        self.join.process([Arrivals(stream, np.array([place]), columns, np.array([passes]))])
        made = self.join.results[before:]
        return [
            tuple(value for name in sorted(result) for value in self.rows[int(result[name][number])])
            for result in made
            for number in range(len(result["S1"]))
        ]

    def held(self, stream: str) -> dict[tuple[int, ...], str]:
        """The rows of a stream that are held, with their status."""
        synopsis = self.join.synopses[stream]
        return {
            self.rows[int(place)]: WORDS[int(status)]
            for place, status in zip(synopsis.place, synopsis.status, strict=True)
            if int(status) in WORDS
        }
