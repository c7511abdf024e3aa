"""What an operator that stands around another one has of it: its name, what it reads, and its scan."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from headrace.operators.operator import Operator, Scanner


class Around:
    """An operator that tells the answers of `inner` in another way, and keeps its own state beside that one's."""

    __slots__ = ()
    inner: Operator

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
