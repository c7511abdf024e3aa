"""The epoch plan, a value: the operators that every epoch runs until the catalog changes, what an epoch has to know of each
(which rows it reads, how long its results are kept), and the streams, relations and functions that they read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property

from headrace.algebra.quality_of_service import QualityOfService
from headrace.algebra.query import Revisions
from headrace.catalog.definitions import FunctionDefinition, StreamDefinition
from headrace.dataclass import dataclass
from headrace.operators.base.operator import Operator
from headrace.time import Duration


@dataclass(frozen=True, slots=True)
class Retention:
    """How long results are kept: those at most `length` behind the instant up to which the query has emitted.

    `adds_up`: the results are a changelog, whose sum is kept when its rows expire. Results of one retention share
    files, so that a file expires as a whole.
    """

    length: Duration
    adds_up: bool = False

    def __str__(self) -> str:
        """The name of its class of result files."""
        return f"{self.length}+" if self.adds_up else str(self.length)


@dataclass(frozen=True, slots=True)
class PlannedOperator:
    """An operator and what an epoch needs to know of it besides: a new fact is a field with a default."""

    operator: Operator
    channel: str = "rows"
    """Which rows of its stream it reads: "rows" (accepted), "late", "rejects", or "kept" (accepted, by its shares)."""
    revisions: Revisions | None = None
    """Which late rows it also takes in; None: none."""
    retention: Retention | None = None
    """How long its results are kept; None: without limit."""
    is_inlined_view: bool = False
    settles: bool = False
    """Whether other queries read it as a relation: they inline its text and do not read its results."""
    quality: QualityOfService | None = None
    """What its answers are worth by delay and loss; None where the query does not state it."""
    repairs: bool = False
    """Whether its answers from samples are corrected from the archive."""


@dataclass(frozen=True)
class EpochPlan:
    """All operators by id, and what they read. Immutable; stored by `plan_files`."""

    planned: Mapping[str, PlannedOperator] = field(default_factory=dict)
    streams: Mapping[str, StreamDefinition] = field(default_factory=dict)
    relations: Mapping[str, str] = field(default_factory=dict)
    """Relation name → file of its current version."""
    functions: Mapping[str, FunctionDefinition] = field(default_factory=dict)
    sample_rates: Mapping[str, float] = field(default_factory=dict)
    """Stream → share of its accepted rows that readers of "kept" see; a stream that is not named: all."""

    @cached_property
    def operators(self) -> Mapping[str, Operator]:
        """The operators alone, by id, in the order of `planned`."""
        return {id_: planned.operator for id_, planned in self.planned.items()}

    @cached_property
    def qualities(self) -> Mapping[str, QualityOfService]:
        """The quality of service of operators that state one, by id."""
        return {id_: planned.quality for id_, planned in self.planned.items() if planned.quality is not None}

    @cached_property
    def settling(self) -> frozenset[str]:
        """Those of them that emit each window once, when it is exact: other queries read them."""
        return frozenset(id_ for id_, planned in self.repairing.items() if planned.settles)

    @cached_property
    def repairing(self) -> Mapping[str, PlannedOperator]:
        """The operators whose answers from samples are corrected, by id."""
        return {id_: planned for id_, planned in self.planned.items() if planned.repairs}

    def retention_of(self, operator: str) -> Retention | None:
        """How long results of an operator are kept; None: without limit, or the plan has no such operator."""
        planned = self.planned.get(operator)
        return None if planned is None else planned.retention

    def sample_rate_of(self, stream: str) -> float:
        """The share of the stream's rows that is not shed now."""
        return self.sample_rates.get(stream, 1.0)
