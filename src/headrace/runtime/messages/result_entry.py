"""Facts about the queries with rows in one run of results (number of rows, least and greatest emission instant): packed
into the run's entry of the results list, or into a file that the entry names, and read from there.

The newest entries of the list are in every manifest, so the facts of ten thousand queries are packed: queries whose names
are only numbers (`q17`) are four columns, as differences, compressed; the few with other names are a mapping. Facts that are
still large are in a file of their own, which the entry names: else each manifest would have those of the newest 64 entries.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

import numpy as np

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.families.numbering import are_registered, id_of
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.home.merged_runs import all_parts_of, parts_of
from headrace.store.files.envelope import seal, unseal
from headrace.store.files.filesystem import Store
from headrace.store.logs.radix_list import Read, Write
from headrace.store.maintenance.retention_classes import PART

Facts: TypeAlias = tuple[int, int, int]
"""Rows, least emission instant, greatest emission instant."""

_NAMED: Final = "queries"
_PACKED: Final = "many"
_FILE: Final = "facts"
_FEW: Final = 32
"""Up to this many queries are a mapping."""
_LARGE: Final = 1 << 10
"""Characters of facts from which on they have a file."""
_KIND: Final = "facts of results"
_VERSION: Final = 1
_NUMBER: Final = re.compile(r"q(0|[1-9]\d{0,17})")
_unpacked: Final[Recent[str, _Columns]] = Recent(256)
_opened: Final[Recent[str, Mapping[str, Any]]] = Recent(256)
"""The facts in files, by the file's name, which is unique."""


@dataclass(slots=True, eq=False)
class FactsOfRun:
    """The facts of the queries of a run while it is written: of some by name, of others by number in columns."""

    named: dict[str, Facts] = field(default_factory=dict)
    columns: list[np.ndarray] = field(default_factory=list)
    """Of shape (4, queries): numbers, rows, least and greatest instants."""

    def add(self, numbers: Ints, rows: Ints, least: Ints, greatest: Ints) -> None:
        """Add queries by number, none of which was added before."""
        columns = np.stack([numbers, rows, least, greatest])
        registered = are_registered(numbers)
        self.columns.append(columns[:, registered])
        for number, *facts in columns[:, ~registered].T.tolist():
            self.named[id_of(number)] = tuple(facts)

    def as_entry(self) -> dict[str, Any]:
        """The facts as JSON values; the inverse is `answered`."""
        if len(self.named) + sum(columns.shape[1] for columns in self.columns) <= _FEW:
            columns = (query for part in self.columns for query in part.T.tolist())
            return {_NAMED: {**self.named, **{id_of(number): tuple(facts) for number, *facts in columns}}}
        others = {name: facts for name, facts in self.named.items() if not _NUMBER.fullmatch(name)}
        numbered = [(int(name[1:]), *facts) for name, facts in self.named.items() if name not in others]
        whole = np.concatenate([*self.columns, np.array(numbered, np.int64).reshape(-1, 4).T], axis=1)
        differences = np.diff(whole[:, np.argsort(whole[0])], axis=1, prepend=0)
        packed = zlib.compress(differences.tobytes(), 6)
        return {_NAMED: others, _PACKED: base64.b85encode(packed).decode("ascii")}


def with_file(entry: Mapping[str, Any], write: Write) -> Mapping[str, Any]:
    """The entry, with the name of a file in place of large facts."""
    facts = {key: entry[key] for key in (_NAMED, _PACKED) if key in entry}
    if len(json.dumps(facts)) < _LARGE:
        return entry
    name = write(seal(_KIND, _VERSION, facts))
    _opened.put(name, facts)
    return {**{key: value for key, value in entry.items() if key not in facts}, _FILE: name}


def few_facts(entry: Mapping[str, Any], is_needed: Callable[[str], bool]) -> dict[str, Any]:
    """The facts of an entry that has them itself, for few queries, in the form in which it has them; none of other entries."""
    if _NAMED not in entry or _PACKED in entry:
        return {}
    return {_NAMED: {query: facts for query, facts in entry[_NAMED].items() if is_needed(query)}}


def answered(entry: Mapping[str, Any], store: Store) -> Mapping[str, Facts]:
    """The queries of an entry of the results list, with their facts. `MissingFile` of an expired entry whose file is deleted."""
    if PART in entry and _NAMED not in entry:
        return _InMerged(store, entry["name"], entry[PART]) if "name" in entry else {}
    return answered_by(entry if _FILE not in entry else _facts_in(entry[_FILE], store.read))


def answered_by(facts: Mapping[str, Any]) -> Mapping[str, Facts]:
    """The queries of an entry that has their facts itself."""
    packed = facts.get(_PACKED)
    return facts[_NAMED] if packed is None else _Answered(facts[_NAMED], _columns(packed))


def _facts_in(name: str, read: Read) -> Mapping[str, Any]:
    facts = _opened.get(name)
    if facts is None:
        facts = unseal(_KIND, _VERSION, read(name), name)
        _opened.put(name, facts)
    return facts


def _columns(packed: str) -> _Columns:
    columns = _unpacked.get(packed)
    if columns is None:
        differences = np.frombuffer(zlib.decompress(base64.b85decode(packed)), np.int64).reshape(4, -1)
        columns = _Columns(*np.cumsum(differences, axis=1))
        _unpacked.put(packed, columns)
    return columns


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """Queries by number, ascending, and their facts."""

    numbers: Ints
    rows: Ints
    least: Ints
    greatest: Ints

    def facts(self, index: int) -> Facts:
        return int(self.rows[index]), int(self.least[index]), int(self.greatest[index])


@dataclass(frozen=True, slots=True, eq=False)
class _Answered(Mapping[str, Facts]):
    """Queries of a mapping, and queries in columns."""

    named: Mapping[str, Facts]
    columns: _Columns

    def __getitem__(self, query: str) -> Facts:
        if query in self.named:
            return self.named[query]
        numbers = self.columns.numbers
        if _NUMBER.fullmatch(query):
            index = int(np.searchsorted(numbers, int(query[1:])))
            if index < len(numbers) and numbers[index] == int(query[1:]):
                return self.columns.facts(index)
        raise KeyError(query)

    def __iter__(self) -> Iterator[str]:
        return iter([*self.named, *[f"q{number}" for number in self.columns.numbers.tolist()]])

    def __len__(self) -> int:
        return len(self.named) + len(self.columns.numbers)


@dataclass(slots=True, eq=False)
class _InMerged(Mapping[str, Facts]):
    """Queries of one part of a merged run; one of them is looked up without the others."""

    store: Store
    name: str
    part: int
    _all: dict[str, Facts] | None = None

    def __getitem__(self, query: str) -> Facts:
        if self._all is not None:
            return self._all[query]
        parts = parts_of(self.store, self.name, query)
        index = parts.index_of(self.part)
        if index is None:
            raise KeyError(query)
        return parts.facts(index)

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def _read(self) -> dict[str, Facts]:
        if self._all is None:
            self._all = all_parts_of(self.store, self.name).of(self.part)
        return self._all
