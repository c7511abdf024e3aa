"""Base class of operators that wrap another one, such as approximate or revised windows: they have the inner operator's
name, inputs, scanner, steps above its windows, and EXPLAIN lines.

Sharing and state are not forwarded. The outer operator stores more than the inner one, so it takes part in nothing that
expects the inner one's state alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.algebra.query import SortKey
from headrace.algebra.windows.context import Context
from headrace.operators.base.operator import BaseOperator, Operator, Scanner

if TYPE_CHECKING:
    from headrace.operators.output.output_stage import Finish


class Around(BaseOperator):
    """An operator that derives its answers from those of `inner`, and has its own state in addition to that of `inner`."""

    __slots__ = ()
    if TYPE_CHECKING:

        @property
        def inner(self) -> Operator:
            """The wrapped operator."""

    @property
    def id(self) -> str:
        """Stable name of its state."""
        return self.inner.id

    @property
    def query(self) -> str:
        """The query whose results it makes."""
        return self.inner.query

    @property
    def stream(self) -> str:
        """The stream it reads."""
        return self.inner.stream

    @property
    def rule(self) -> str:
        """The name of the planner's rule that chose it."""
        return self.inner.rule

    @property
    def columns(self) -> frozenset[str]:
        """The stream's columns it reads."""
        return self.inner.columns

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations it looks up."""
        return self.inner.relations

    def scanner(self, relations: Mapping[str, pa.Table]) -> Scanner:
        """The inner operator's."""
        return self.inner.scanner(relations)

    @property
    def context(self) -> Context | None:
        """The class of its window."""
        return self.inner.context

    @property
    def finishing(self) -> Finish | None:
        """The steps above its windows."""
        return self.inner.finishing

    @property
    def sort(self) -> tuple[SortKey, ...]:
        """The hidden sort columns that its results carry."""
        return self.inner.sort

    @property
    def reads_changes(self) -> bool:
        """Whether it reads insertions and retractions whatever its stream is."""
        return self.inner.reads_changes

    @property
    def counts_arrivals(self) -> bool:
        """Whether rows count in the order in which epochs bring them."""
        return self.inner.counts_arrivals

    def display(self) -> Iterator[str]:
        """The inner operator's lines."""
        return self.inner.display()

    @property
    def synopsis_bytes(self) -> Mapping[str, int]:
        """Of the inner operator's synopses."""
        return self.inner.synopsis_bytes
