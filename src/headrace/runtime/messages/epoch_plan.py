"""The epoch plan: what every epoch does until the catalog changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.catalog.definitions import FunctionDefinition, StreamDefinition
from headrace.operators.base.operator import Operator
from headrace.time import Duration


@dataclass(frozen=True, slots=True)
class Retention:
    """Results are kept that lie at most `length` behind what the query has answered.

    `adds_up`: they are changes of a relation, whose sum is still wanted when they have gone. Results of one retention
    share files, so that a file goes as a whole.
    """

    length: Duration
    adds_up: bool = False

    def __str__(self) -> str:
        """The name of its class of result files."""
        return f"{self.length}+" if self.adds_up else str(self.length)


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """All standing operators and what they read. Immutable; files in the home, see `plan_files`."""

    operators: Mapping[str, Operator] = field(default_factory=dict)
    streams: Mapping[str, StreamDefinition] = field(default_factory=dict)
    relations: Mapping[str, str] = field(default_factory=dict)
    """Relation name → file that holds the version in force."""
    functions: Mapping[str, FunctionDefinition] = field(default_factory=dict)
    channels: Mapping[str, str] = field(default_factory=dict)
    """Operator → the channel it reads of its stream, where that is not its accepted rows: "late", "rejects", "kept"."""
    revisions: Mapping[str, Duration | None] = field(default_factory=dict)
    """Operator → how far behind the punctuation late rows may be that it takes in too (None: however far)."""
    retentions: Mapping[str, Retention] = field(default_factory=dict)
    """Operator → how long its results are kept; one that is not named keeps all."""
    sample_rates: Mapping[str, float] = field(default_factory=dict)
    """Stream → the share of its accepted rows that those who read "kept" are shown; one that is not named: all."""
    inlined_views: frozenset[str] = frozenset()
    """Operators of registered queries that others read as the relations they mean: their texts, not their results."""

    def sample_rate_of(self, stream: str) -> float:
        """The share that is in force for rows that come now."""
        return self.sample_rates.get(stream, 1.0)
