"""Repair: whatever was shed, windows are answered from what was read, and again, once, when all of their rows are exact; in the end
the changelog adds up to the answers of a query of which nothing was ever shed.

The reference has the meaning (`repairs`); the operator is driven with shares, slices and compactions at random, and the ledger decides
what is repaired. Values are such that their sums are exact: then a window that nothing changes is not emitted again.
"""

from __future__ import annotations

import tempfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.query import Query
from headrace.language.binder.query_binder import bind_query
from headrace.operators.base.batch import Batch
from headrace.operators.panes.damage import Damage
from headrace.planner.lowering.lower import lower
from headrace.reference.evaluate import windows_answer
from headrace.reference.history import History, RecordedStream, StreamRow
from headrace.reference.sampling.repairs import repairs
from headrace.runtime.messages.repair_ledger import RepairLedger
from headrace.runtime.tasks.scan.shed_rows import shown_of
from headrace.time import BEGINNING, FOREVER, SECOND, Instant
from tests.examples import examples
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.driving import batch, plain
from tests.laws.test_shedding import CATALOG, KEEPS, SLACK, alike, passed, texts, weight
from tests.operators.local_driver import DrivenState
from tests.runtime.epoch.test_supervisor import Failing
from tests.runtime.rig import Rig, answer, cut, expected, made_rows

REPAIR = " WITH SHEDDING (repair)"
POWERS = (1.0, 1.0, 0.5, 0.25)
SEED = zlib.crc32(b"s")


def tame(stream: RecordedStream) -> RecordedStream:
    """With values of which all sums are exact, in any order and with any of these weights."""

    def small(values: Mapping[str, Any]) -> dict[str, Any]:
        x, y = values["x"], values["y"]
        is_odd = y is not None and y == 0.1
        return {**values, "x": None if x is None else x % 32, "y": 0.25 if is_odd else y}

    return replace(stream, rows=tuple(replace(row, values=small(row.values)) for row in stream.rows))


@dataclass
class Life:
    """One query, driven: epochs of rows at shares, and of repair; the history of the same epochs, and how far each is exact."""

    query: Query
    data: st.DataObject
    ledger: RepairLedger = field(default_factory=RepairLedger)
    read: list[tuple[list[StreamRow], float, Instant]] = field(default_factory=list)
    """By entry of the archive: its rows, the share in force, and the punctuation before."""
    rows: list[StreamRow] = field(default_factory=list)
    punctuations: list[Instant] = field(default_factory=list)
    repaired_to: list[Instant] = field(default_factory=list)
    emitted: list[list[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.operator = lower("q", self.query, "q")
        self.state = DrivenState(self.operator, {}, {}, False)

    @property
    def punctuation(self) -> Instant:
        return self.punctuations[-1] if self.punctuations else BEGINNING

    def live(self, rows: Sequence[StreamRow], keep: float, punctuation: Instant) -> None:
        """An epoch of rows, of which a share is kept."""
        before, began, entry = self.ledger.since, self.punctuation, len(self.read)
        accepted = [row for row in rows if row.fate == "accepted"]
        self.read.append((accepted, keep, began))
        if keep < 1:
            shed = self.ledger.shedding(began)
            around = replace(shed.damaged(entry, began, FOREVER).damage, before=before)
            times = [row.at for row in accepted]
            low, high = max(began, min(times, default=FOREVER)), max(times, default=BEGINNING)
            self.ledger = shed.damaged(entry, low, high)
        else:
            around = self.ledger.damage
        number = len(self.punctuations) + 1
        self.rows += [
            replace(row, epoch=number, weight=weight(row.position, "s", keep), position=row.position)
            for row in accepted
        ]
        parts = self.data.draw(streams.splits(self.data.draw(st.permutations(accepted))), "splits")
        self._epoch([shown_of(batch(part, some.SCHEMA), SEED, keep) for part in parts], punctuation, around)

    def repair(self, slices: int, rows: int) -> None:
        """An epoch that reads so many slices, each of so many rows, of the entries that wait."""
        (entry, done), batches = self.ledger.position, []
        while slices and entry < len(self.read):
            left = self.read[entry][0]
            cut_rows = [left[at : at + rows] for at in range(0, len(left), rows)][done:]
            batches += [shown_of(batch(part, some.SCHEMA), SEED, 1.0) for part in cut_rows[:slices]]
            done += min(slices, len(cut_rows))
            slices -= min(slices, len(cut_rows))
            if done >= -(-len(left) // rows):
                after = self.ledger.from_entry(entry + 1)
                entry, done = after.position if after.ranges else (len(self.read), 0)
        after = self.ledger.from_entry(entry, done)
        since = self.read[after.ranges[0][0]][2] if after.ranges else FOREVER
        around = replace(self.ledger.damage, since=since, is_repair=True)
        self.ledger = replace(after, since=since)
        self._epoch(batches, self.punctuation, around)

    def _epoch(self, batches: Sequence[Batch], punctuation: Instant, around: Damage) -> None:
        already, number = len(self.state.results), len(self.punctuations)
        self.state.damage = None if around.is_none else around
        tasks = self.data.draw(st.integers(1, 3), "tasks")
        needed = [part.only(self.operator.columns) for part in batches]
        self.state.epoch(number, needed, punctuation, tasks)
        if self.data.draw(st.booleans(), "compaction"):
            self.state.compact(self.data.draw(st.integers(1, 3), "runs"))
        tables = self.state.results[already:]
        self.emitted.append([row for table in tables for row in plain(table, self.query, changes=True)])
        self.punctuations.append(punctuation)
        self.repaired_to.append(around.since)

    @property
    def history(self) -> History:
        """What was read, with the weights that rows had."""
        return History({"s": RecordedStream(tuple(self.rows), tuple(self.punctuations))}, {})


def lived(data: st.DataObject, text: str) -> Life:
    """A life at random, at the end of which nothing waits."""
    stream = tame(passed(data.draw(streams.recorded(), "stream")))
    life, rows_of_slice = Life(bind_query(text + REPAIR, CATALOG), data), data.draw(st.integers(1, 5), "rows")
    for number, punctuation in enumerate(stream.punctuations, 1):
        keep = data.draw(st.sampled_from(POWERS), "keep")
        rows = [
            replace(row, position=row.position + (number << 32)) for row in stream.rows if row.epoch == number
        ]
        life.live(rows, keep, punctuation)
        for _ in range(data.draw(st.integers(0, 2), "repairs")):
            if life.ledger.waits:
                life.repair(data.draw(st.integers(1, 4), "slices"), rows_of_slice)
    while life.ledger.waits:
        life.repair(data.draw(st.integers(1, 4), "slices"), rows_of_slice)
    return life


@given(data=st.data())
def test_whatever_was_shed_and_when_it_is_repaired_every_epoch_emits_what_the_reference_does(
    data: st.DataObject,
) -> None:
    life = lived(data, data.draw(texts(), "text"))
    meant = repairs(life.query, life.history, life.repaired_to)
    for epoch, emitted in enumerate(life.emitted, 1):
        for sign in (-1, 1):
            answered = [(at, row) for at, change, row in emitted if change == sign]
            should = [(at, row) for when, at, change, row in meant if (when, change) == (epoch, sign)]
            alike(answered, should, life.query, 32.0)


@given(data=st.data())
def test_once_all_is_repaired_the_changelog_adds_up_to_the_answers_of_a_query_that_saw_every_row(
    data: st.DataObject,
) -> None:
    life = lived(data, data.draw(texts(), "text"))
    whole = [replace(row, weight=1.0) for row in life.rows]
    history = History({"s": RecordedStream(tuple(whole), tuple(life.punctuations))}, {})
    held: Counter[str] = Counter()
    rows: dict[str, Any] = {}
    for at, sign, row in (change for emitted in life.emitted for change in emitted):
        held[repr((at, row))] += sign
        rows[repr((at, row))] = at, row
    assert set(held.values()) <= {0, 1}
    remaining = [rows[key] for key, count in held.items() if count]
    alike(remaining, windows_answer(life.query, history, history.punctuation(life.query)), life.query, 32.0)
    assert all(row["kept"] == 1 for _, row in remaining)
    assert all(
        row[name] == 0 for _, row in remaining for name in life.query.schema.names if name.endswith("_error")
    )


@given(data=st.data())
def test_state_for_repair_is_gone_once_nothing_waits(data: st.DataObject) -> None:
    """After a merge, only exact panes are left: as many rows as of a query of which nothing was shed."""
    life = lived(data, data.draw(texts(), "text"))
    life.state.compact(len(life.state.runs))
    stored = {name for run in life.state.runs for name, table in run.items() if table.num_rows}
    assert stored <= {"open0", "sealed0"}


# ------------------------------------------------------------------------------------------------------- whole epochs

QUERIES = {
    "tumble": "SELECT k, COUNT(*) AS n, SUM(x) AS total, AVG(y) AS mean, MIN(y) AS low"
    " FROM s [RANGE TUMBLING 10 SECONDS] GROUP BY k",
    "slide": "SELECT COUNT(*) AS n, AVG(y) AS mean FROM s [RANGE 10 SECONDS SLIDE 3 SECONDS] WHERE x > 0",
    "member": "SELECT g, COUNT(*) FILTER (WHERE x > 2) AS n, MAX(x) AS top FROM s [RANGE 20 SECONDS SLIDE 5 SECONDS]"
    " WHERE g IN (SELECT id FROM names) GROUP BY g",
    "ever": "SELECT g, COUNT(*) AS n, MAX(x) AS top FROM s [LANDMARK SLIDE 4 SECONDS] WHERE y > -5 GROUP BY g",
}


ABOVE = {
    "above": "SELECT k, MAX(n) AS top, SUM(total) AS total FROM tumble [RANGE TUMBLING 20 SECONDS] GROUP BY k",
    "rows_above": "SELECT g, n FROM ever WHERE n > 3",
    "inside": "SELECT MAX(n) AS top FROM (SELECT COUNT(*) AS n FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS]"
    f"{REPAIR}) AS w [RANGE TUMBLING 20 SECONDS]",
}
"""Queries over them: their input is exact."""


@examples(12)
@given(data=st.data())
def test_over_restarts_and_failures_a_flood_leaves_the_answers_of_a_home_that_never_had_one(
    data: st.DataObject,
) -> None:
    seed = data.draw(st.integers(0, 99), "seed")
    places = sorted(data.draw(st.sets(st.integers(1, 59), min_size=2, max_size=6), "cuts"))
    files = cut(made_rows(seed, 60, disorder=3 * SECOND, every=SECOND // 4), *places)
    keeps = [data.draw(st.sampled_from(KEEPS), "keep") for _ in files]
    halfway = data.draw(st.integers(0, len(files)), "when the late ones come")
    archive = data.draw(st.sampled_from(({}, {"blocks": "4"}, {"archive": "in place"})), "archive")
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder), {"maxFilesPerTrigger": "1", "keep": f"{keeps[0]}", **archive}, SLACK)
        with rig.hub(1, {**{name: text + REPAIR for name, text in QUERIES.items()}, **ABOVE}):
            pass
        for number, file in enumerate(files):
            rig.drop(file)
            fails = Failing(data.draw(st.integers(0, 1), "failures"))
            with rig.hub(data.draw(st.integers(1, 3), "tasks"), executor=fails, waits=(0.0,)) as hub:
                hub.execute(f"ALTER STREAM s SET (keep '{keeps[number]}')")
                if number == halfway:
                    for name, text in QUERIES.items():
                        hub.execute(f"CREATE QUERY late_{name} AS {text}{REPAIR}")
                    for name, text in ABOVE.items():
                        hub.execute(f"CREATE QUERY late_{name} AS {text}")
                hub.catch_up()
        with rig.hub(2) as hub:
            hub.execute("ALTER STREAM s SET (keep '1')")
            closing = hub.run_once()
            names = [query.definition.name for query in hub.catalog.queries.values()]
            for name in names:
                query = hub.operator_and_query(name)[1]
                assert answer(hub, name, closing) == expected(query, files, SLACK), name
            assert {status["waiting"] for status in hub.status()["repairs"].values()} <= {0}
