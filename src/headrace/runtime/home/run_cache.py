"""The cache, in each process, of files that are never rewritten: versions of stored relations (also written here), state
and result runs, and values computed from a run. State runs that are no longer live are closed. Plans have a cache in
`plan_files`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import pyarrow as pa

from headrace.operators.families.family import QueryRowCounts
from headrace.runtime.home import file_names
from headrace.runtime.home.lru_cache import Recent
from headrace.store.files.container import Container, parts
from headrace.store.files.filesystem import Store

_Value = TypeVar("_Value")
_KEPT: Final = 1024
"""Values of a few hundred runs: a task of small epochs has about eight runs of up to ten sections, a standing task several tasks."""
_SMALL: Final = 1 << 16
"""Bytes of runs that are kept in memory when they are written."""
_NEWEST: Final = 64
"""Runs of results that are kept when they are written: followers are seldom further behind."""
_cache: Final[Recent[tuple[str, str], Any]] = Recent(_KEPT)
"""Immutable values by (home, file name): files are never rewritten, so no entry is stale."""
_newest: Final[Recent[tuple[str, str], Callable[[str], pa.Table]]] = Recent(_NEWEST)
"""By (home, file name) what gives a section of a small run of results that was just written, here or by a task of this process's epoch."""


def save_relation(store: Store, name: str, version: int, table: pa.Table) -> str:
    """Write a version of a relation; returns the file's name."""
    file = file_names.relation(name, version)
    store.write_once(file, parts({"rows": table.combine_chunks()}))
    return file


def load_relation(store: Store, name: str) -> pa.Table:
    """The rows of a version of a relation."""
    rows = _cached(store, name, lambda: Container.open(store.map(name), name).table("rows"))
    assert isinstance(rows, pa.Table)
    return rows


class StoredSections(Mapping[str, pa.Table]):
    """The sections of a run in its file, memory-mapped: each is compared with its checksum when it is taken first."""

    __slots__ = ("_container", "_taken", "views")

    def __init__(self, container: Container) -> None:
        self._container = container
        self.views = container.views()
        """The sections as they are found, for who needs their rows and bytes alone."""
        self._taken: dict[str, pa.Table] = {}

    def __getitem__(self, name: str) -> pa.Table:
        table = self._taken.get(name)
        if table is None:
            if name not in self.views:
                raise KeyError(name)
            table = self._taken[name] = self._container.table(name)
        return table

    def __iter__(self) -> Iterator[str]:
        return iter(self.views)

    def __len__(self) -> int:
        return len(self.views)


def open_run(store: Store, name: str) -> Mapping[str, pa.Table]:
    """The sections of a state run, or of a file of keys."""
    sections: Mapping[str, pa.Table] = _cached(
        store, name, lambda: StoredSections(Container.open(store.map(name), name))
    )
    return sections


def views_of(sections: Mapping[str, pa.Table]) -> Mapping[str, pa.Table]:
    """Sections of a run for their rows and bytes: none of them is read."""
    return sections.views if isinstance(sections, StoredSections) else sections


def section_of(store: Store, name: str, section: str) -> pa.Table:
    """One section of a run, memory-mapped; the others, of which a run of results may have ten thousand, are not opened."""
    section_of_newest = _newest.get((str(store.root), name))
    if section_of_newest is not None:
        return section_of_newest(section)
    return opened(store, name).table(section)


def keep_results(store: Store, name: str, sections: Mapping[str, pa.Table]) -> bool:
    """Keep the sections of a run of results that was just written, if they are small, for those who read it at once; whether they are."""
    size = 0
    for table in sections.values():
        size += table.get_total_buffer_size()
        if size > _SMALL:
            break
    is_small = size <= _SMALL
    if is_small:
        _newest.put((str(store.root), name), sections.__getitem__)
    return is_small


def keep_received_results(store: Store, name: str, content: bytes) -> None:
    """Keep the content of such a run that a task of another process has written, and sent."""
    if _newest.get((str(store.root), name)) is None:
        _newest.put((str(store.root), name), lambda section: Container.open(content, name).table(section))


def batches_of(store: Store, name: str, section: str) -> Callable[[], Iterator[pa.RecordBatch]]:
    """A reader of one section of a run in batches; the run stays open."""
    return opened(store, name).batches(section)


def opened(store: Store, name: str) -> Container:
    """A run, memory-mapped; its sections are read when they are asked for."""
    container = _cached(store, f"{name}#index", lambda: Container.open(store.map(name), name))
    assert isinstance(container, Container)
    return container


def keep_state_run(
    store: Store, name: str, sections: Mapping[str, pa.Table], sizes: Mapping[str, int]
) -> None:
    """Keep the sections of a state run that was just written, if they are small: the next epoch need not open its file.

    Their `sizes`, bytes by state, are kept of all runs.
    """
    known_sizes(store, name).update(sizes)
    if sum(sizes.values()) > _SMALL:
        return
    whole = {section: table.combine_chunks() for section, table in sections.items()}
    if sum(table.get_total_buffer_size() for table in whole.values()) <= _SMALL:
        _cache.put((str(store.root), name), whole)


_live: Final[dict[str, frozenset[str]]] = {}
"""By home: the state runs that were live when others were closed last."""


def close_state_runs(store: Store, live: frozenset[str]) -> None:
    """Close state runs that are not live: their files would stay mapped, and on disk after they are deleted."""
    root = str(store.root)
    if _live.get(root, live) <= live:
        _live[root] = live
        return
    _live[root] = live
    of_home = [key for key in _cache.present() if key[0] == root]  # the cache is that of all homes
    _cache.drop(
        key for key in of_home if key[1].split("#")[0] not in live and file_names.is_state_run(key[1])
    )


def query_row_counts_of(store: Store, name: str, section: str) -> QueryRowCounts:
    """Row counts by query of a family's section of a state run."""
    query_row_counts = _cached(
        store, f"{name}#{section}", lambda: QueryRowCounts.of(open_run(store, name)[section])
    )
    assert isinstance(query_row_counts, QueryRowCounts)
    return query_row_counts


def of_run(store: Store, name: str, what: str, compute: Callable[[], _Value]) -> _Value:
    """A value computed from a run, as long as the run is open; `what` names the kind of value."""
    value: _Value = _cached(store, f"{name}#{what}", compute)
    return value


def known_sizes(store: Store, name: str) -> dict[str, int]:
    """Bytes of those states of a run of which they are known; others can be added."""
    sizes: dict[str, int] = _cached(store, f"{name}#bytes by state", dict)
    return sizes


def bytes_by_state(sections: Mapping[str, pa.Table]) -> dict[str, int]:
    """Bytes of `state/section` tables by the name of the state."""
    sizes: dict[str, int] = {}
    for section, table in sections.items():
        state = section.partition("/")[0]
        sizes[state] = sizes.get(state, 0) + table.nbytes
    return sizes


def _cached(store: Store, name: str, load: Callable[[], Any]) -> Any:
    key = (str(store.root), name)
    value = _cache.get(key)
    if value is None:
        value = load()
        _cache.put(key, value)
    return value
