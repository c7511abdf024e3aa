"""Sums of archive runs, stored: what questions of one signature have summed of runs, so that the question of another process reads only
runs that are new (OSCAR's lazy copies of aggregates, written when the first question has read the rows).

A run is never rewritten, so a file of sums is right as long as its runs are there; it is a copy that may be lost at any time. A file has the
sums of many runs, under a digest of the signature. Where many files have gathered, one with the sums of all of them is written.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Named
from headrace.dataclass import dataclass
from headrace.errors import StoreError
from headrace.operators.base.group_codes import flat, ints
from headrace.runtime.home.file_names import file_name
from headrace.runtime.home.home import Home
from headrace.runtime.invoke.questions.run_sums import Part, Signature, concatenated
from headrace.store.files.container import Container, parts
from headrace.store.files.filesystem import MissingFile
from headrace.store.maintenance.sums_collection import RUNS, SUMS

LEAST_ROWS: Final = 1 << 16
"""Rows of runs whose sums are stored together, at least: fewer are soon read again."""
MOST_FILES: Final = 8
"""Files of one signature from which on one with all of their sums is written."""
_LAYOUT: Final = "1"
"""Of the sums in a file."""
_SECTION: Final = "sums"
_RUN: Final = "run"


def folder_of(stream: str, signature: Signature) -> str | None:
    """The folder of the sums of a stream for questions of a signature; None where that is not the same in every process."""
    factors, keys, calls = signature
    text = "\n".join([_LAYOUT, *sorted(map(repr, factors)), repr(keys), repr(calls)])
    if " at 0x" in text:
        return None
    return f"{SUMS}/{file_name(stream)}/{hashlib.sha256(text.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class StoredSums:
    """What is stored for one signature: a part for each file, whose runs are numbered by `runs`."""

    home: Home
    folder: str
    parts: Sequence[tuple[Part, Sequence[str]]]

    @staticmethod
    def of(home: Home, folder: str, terms: int) -> StoredSums:
        """Those of all files that are whole, without files whose runs are all in larger ones."""
        found = list[tuple[Part, Sequence[str]]]()
        for file in home.store.list(f"{folder}/"):
            with suppress(MissingFile, StoreError):
                found.append(_read(Container.open(home.store.map(file.name), file.name), terms))
        needed, seen = list[tuple[Part, Sequence[str]]](), set[str]()
        for part, runs in sorted(found, key=lambda one: -len(one[1])):
            if not seen.issuperset(runs):
                needed.append((part, runs))
                seen.update(runs)
        return StoredSums(home, folder, needed)

    @property
    def runs(self) -> frozenset[str]:
        """The runs that it has sums of."""
        return frozenset(run for _, runs in self.parts for run in runs)

    def known(self, numbers: Mapping[str, int]) -> Iterator[Part]:
        """The sums of some runs, given by their numbers in a question; of each once."""
        left = dict(numbers)
        for part, runs in self.parts:
            number = np.array([left.pop(run, -1) for run in runs], np.int64)
            if (number >= 0).any():
                yield replace(part, run=number[part.run]).without((-1,))

    def write(self, new: Mapping[str, Part], present: Collection[str], keys: Sequence[Named]) -> None:
        """Store the sums of more runs, each without a number; with those of all runs that are present, where files are many."""
        runs, held = (
            list(new),
            [replace(part, run=np.full(len(part.run), n)) for n, part in enumerate(new.values())],
        )
        if len(self.parts) >= MOST_FILES:
            numbers = {run: n for n, run in enumerate(sorted(self.runs & set(present)), len(runs))}
            held += self.known(numbers)
            runs += numbers
        sections = parts({_SECTION: _table(held, keys)}, {RUNS: runs}, compressed=True)
        with suppress(StoreError):  # a home that cannot be written can be asked
            self.home.store.write_once(f"{self.folder}/{uuid.uuid4().hex}.run", sections, durable=False)


def _table(held: Sequence[Part], keys: Sequence[Named]) -> pa.Table:
    """A row for each run and group: the sums, and the products of which the first term is not after the second."""
    columns = dict(zip(_keys(len(keys)), concatenated(keys, [part.keys for part in held]), strict=True))
    columns[_RUN] = pa.array(np.concatenate([part.run for part in held]))
    total = np.concatenate([part.total for part in held])
    products = np.concatenate([part.products for part in held])
    columns |= {f"t{one}": pa.array(total[:, one]) for one in range(total.shape[1])}
    columns |= {f"p{one} {other}": pa.array(products[:, one, other]) for one, other in _pairs(total.shape[1])}
    return pa.table(columns)


def _read(file: Container, terms: int) -> tuple[Part, Sequence[str]]:
    table = file.table(_SECTION)
    keys = [name for name in table.column_names if name.startswith("k")]
    total = np.stack([table.column(f"t{one}").to_numpy() for one in range(terms)], axis=1)
    products = np.zeros((len(total), terms, terms))
    for one, other in _pairs(terms):
        products[:, one, other] = products[:, other, one] = table.column(f"p{one} {other}").to_numpy()
    arrays = tuple(flat(table.column(name)) for name in keys)
    return Part(arrays, ints(table, _RUN), total, products, []), file.header[RUNS]


def _keys(count: int) -> list[str]:
    return [f"k{number}" for number in range(count)]


def _pairs(terms: int) -> list[tuple[int, int]]:
    return [(one, other) for one in range(terms) for other in range(one, terms)]
