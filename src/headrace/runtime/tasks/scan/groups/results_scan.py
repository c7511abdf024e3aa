"""Scan of results that queries of one family read, each its own: the rows of all these streams as one batch for each group of readers.

What is left to other ways: results with late rows, and those of which a reader is in no group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter_ns
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.observation import WorkObservation
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import Ints, flat, ints
from headrace.operators.base.operator import AT, QUERY_NUMBER
from headrace.runtime.messages.task_messages import ScanMessage, Split, StreamReceipt
from headrace.runtime.progress.plan_index import PlanIndex
from headrace.runtime.tasks.scan.groups.reader_groups import NO_GROUPS, ReaderGroup, Target, reader_groups
from headrace.runtime.tasks.scan.row_reader import position_of
from headrace.runtime.tasks.scan.union_scan import UnionFeed
from headrace.runtime.tasks.timing import Timed
from headrace.time import BEGINNING, Instant

_LEAST: Final = 2
"""Streams that are read together, at least."""


@dataclass(frozen=True, slots=True)
class Made:
    """Results of one stream, with the event time and position of each row."""

    split: Split
    table: pa.Table
    at: Ints
    position: Ints


class ResultsScan:
    """The readers of a scan task that are in groups."""

    def __init__(self, index: PlanIndex, message: ScanMessage) -> None:
        self._message = message
        self._groups = (
            NO_GROUPS if message.replay else reader_groups(index, message.operators, message.isolated)
        )
        self._scanners: dict[int, Timed] = {}
        self.receipts: dict[str, StreamReceipt] = {}
        self.work: dict[str, WorkObservation] = {}

    @property
    def scanners(self) -> list[Timed]:
        """Those of groups that got rows."""
        return list(self._scanners.values())

    def read(self, splits: Sequence[Split]) -> list[Split]:
        """Read results whose readers are all in groups; the other splits are returned."""
        targets = self._groups.of_results
        together = [split for split in splits if split.made is not None and split.stream in targets]
        if len(together) < _LEAST:
            return list(splits)
        made = list(in_time(together, self._message.punctuation))
        read = {id(rows.split) for rows in made}
        self._offer(made)
        return [split for split in splits if id(split) not in read]

    def _offer(self, made: Sequence[Made]) -> None:
        """Pass results to the groups of their readers, and count them."""
        started = perf_counter_ns()
        by_reading: dict[tuple[int, int], list[tuple[Target, Made]]] = {}
        for rows in made:
            for target in self._groups.of_results[rows.split.stream]:
                by_reading.setdefault((id(target.group), target.input_number), []).append((target, rows))
        for reading in by_reading.values():
            self._pass_on(reading)
        self._count(made, perf_counter_ns() - started)

    def _pass_on(self, reading: Sequence[tuple[Target, Made]]) -> None:
        """Pass results to one input of a group."""
        first = reading[0][0]
        feed = self._feed(first)
        names = sorted(first.group.columns) if feed is None else sorted(feed.reads())
        tables = [rows.table.select(names) for _, rows in reading]
        whole = pa.concat_tables(tables)
        queries = np.repeat([target.query for target, _ in reading], [table.num_rows for table in tables])
        columns = {name: flat(whole.column(name)) for name in names}
        columns[QUERY_NUMBER] = pa.array(queries)
        at, position = (
            np.concatenate(parts)
            for parts in zip(*((rows.at, rows.position) for _, rows in reading), strict=True)
        )
        batch = Batch(columns, at, position)
        (self._scanner(first.group) if feed is None else feed).add(batch)

    def _scanner(self, group: ReaderGroup) -> Timed:
        scanner = self._scanners.get(id(group))
        if scanner is None:
            queries = tuple([operator.id for operator in group.operators])
            scanner = self._scanners[id(group)] = Timed(queries, group.scanner())
        return scanner

    def _feed(self, target: Target) -> UnionFeed | None:
        """What passes rows of an input of a union to a group; None for a reader of the results themselves."""
        if target.union_input is None:
            return None
        readers = [self._scanner(target.group)]
        return UnionFeed(target.union_input, target.input_number, readers, target.group.columns, target.query)

    def feeds(self, stream: str) -> list[UnionFeed]:
        """What passes the rows of a stream to groups that read it as an input of unions."""
        feeds = map(self._feed, self._groups.of_inputs.get(stream, ()))
        return [feed for feed in feeds if feed is not None]

    def reads(self, union: str) -> bool:
        """Whether a group reads a union."""
        return union in self._groups.unions

    def _count(self, made: Sequence[Made], nanoseconds: int) -> None:
        """The receipt and the work of each stream; time and bytes are divided by rows."""
        rows = sum(len(part.at) for part in made)
        size = sum(part.table.nbytes for part in made[:1]) // max(1, len(made[0].at)) if made else 0
        for part in made:
            name, count = part.split.stream, len(part.at)
            receipt = StreamReceipt(rows=count, bytes=size * count, greatest=int(part.at.max()))
            former = self.receipts.get(name)
            self.receipts[name] = receipt if former is None else former.plus(receipt, 0)
            self.work[f"read {name}"] = WorkObservation(count, count, nanoseconds * count // rows)


def in_time(splits: Sequence[Split], punctuation: Mapping[str, Instant]) -> Iterator[Made]:
    """Results in memory, of streams without late rows: none is below the punctuation of its stream."""
    tables = [split.made for split in splits if split.made is not None]
    counts = np.array([table.num_rows for table in tables])
    ends = np.cumsum(counts)
    shifts = [0 if split.record is None else split.record["shift"] for split in splits]
    bounds = [punctuation.get(split.stream, BEGINNING) for split in splits]
    all_at = ints(pa.concat_tables([table.select([AT]) for table in tables]), AT) - np.repeat(shifts, counts)
    late = np.add.reduceat(all_at < np.repeat(bounds, counts), ends - counts)
    numbers = np.arange(int(ends[-1]))
    for split, table, end, is_late in zip(splits, tables, ends.tolist(), late.tolist(), strict=True):
        if not is_late:
            rows = slice(end - table.num_rows, end)
            position = numbers[rows] - rows.start + position_of(split.ordinal)
            yield Made(split, table, all_at[rows], position)


def added(
    receipts: Mapping[str, StreamReceipt], others: Mapping[str, StreamReceipt]
) -> dict[str, StreamReceipt]:
    """Receipts by stream; of a stream of which some rows were read together with others and some were not, their sum."""
    return {
        **receipts,
        **{name: receipts[name].plus(seen, 0) if name in receipts else seen for name, seen in others.items()},
    }
