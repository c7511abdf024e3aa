"""Which queries has a run of results answers of? A part of the entry that names the run in the results list.

The newest entries of the list are in every manifest, so what they say of ten thousand queries is packed: beside the few of
other names, those that are only numbers (`q17`) are four columns, as differences, compressed.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from headrace.operators.base.group_codes import Ints
from headrace.runtime.home.lru_cache import Recent

Facts: TypeAlias = tuple[int, int, int]
"""Rows, least emission instant, greatest emission instant."""

_NAMED: Final = "queries"
_PACKED: Final = "many"
_FEW: Final = 32
"""So many are said one by one."""
_NUMBER: Final = re.compile(r"q(0|[1-9]\d{0,17})")
_unpacked: Final[Recent[str, _Columns]] = Recent(256)


def as_entry(queries: Mapping[str, Facts]) -> dict[str, Any]:
    """What an entry says of its queries, as JSON values; see `answered`."""
    if len(queries) <= _FEW:
        return {_NAMED: dict(queries)}
    named = {name: facts for name, facts in queries.items() if not _NUMBER.fullmatch(name)}
    numbered = [(int(name[1:]), *facts) for name, facts in queries.items() if name not in named]
    numbered.sort()
    columns = np.diff(np.array(numbered, np.int64).reshape(-1, 4), axis=0, prepend=0)
    packed = zlib.compress(np.ascontiguousarray(columns.T).tobytes(), 6)
    return {_NAMED: named, _PACKED: base64.b85encode(packed).decode("ascii")}


def answered(entry: Mapping[str, Any]) -> Mapping[str, Facts]:
    """The queries of an entry of the results list, each with what there is of it."""
    packed = entry.get(_PACKED)
    return entry[_NAMED] if packed is None else _Answered(entry[_NAMED], _columns(packed))


def _columns(packed: str) -> _Columns:
    known = _unpacked.get(packed)
    if known is None:
        differences = np.frombuffer(zlib.decompress(base64.b85decode(packed)), np.int64).reshape(4, -1)
        known = _Columns(*np.cumsum(differences, axis=1))
        _unpacked.put(packed, known)
    return known


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """Queries by number, ascending, and their facts."""

    numbers: Ints
    rows: Ints
    least: Ints
    greatest: Ints

    def facts(self, place: int) -> Facts:
        return int(self.rows[place]), int(self.least[place]), int(self.greatest[place])


@dataclass(frozen=True, slots=True, eq=False)
class _Answered(Mapping[str, Facts]):
    """Those that are named one by one, and those in columns."""

    named: Mapping[str, Facts]
    columns: _Columns

    def __getitem__(self, query: str) -> Facts:
        if query in self.named:
            return self.named[query]
        numbers = self.columns.numbers
        if _NUMBER.fullmatch(query):
            place = int(np.searchsorted(numbers, int(query[1:])))
            if place < len(numbers) and numbers[place] == int(query[1:]):
                return self.columns.facts(place)
        raise KeyError(query)

    def __iter__(self) -> Iterator[str]:
        yield from self.named
        yield from (f"q{number}" for number in self.columns.numbers.tolist())

    def __len__(self) -> int:
        return len(self.named) + len(self.columns.numbers)
