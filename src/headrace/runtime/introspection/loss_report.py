"""What did not reach the answers? Late and rejected rows of a run: how many, where they are, what would have helped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.runtime.backfill.completeness import plan_in_force
from headrace.runtime.home.file_names import file_name
from headrace.runtime.home.home import Home
from headrace.runtime.plan import derived_streams
from headrace.store.logs.manifest import Manifest
from headrace.time import FOREVER, render_duration

_WHOLLY: Final = "wholly"


def loss_report(home: Home, before: Manifest, after: Manifest, *, kept: bool) -> Iterator[str]:
    """One sentence for each stream with late rows, each stream and each query with rejected ones.

    Counted between two manifests. `kept` False: the home goes with the run, so the reasons are told instead of the place.
    """
    taken = _taken_in(home, after)
    for stream in home.catalog.streams.values():
        then, now = before.stream(stream.name), after.stream(stream.name)
        late = now.late - then.late
        if late > 0 and taken.get(stream.name) != _WHOLLY:
            told = f"{stream.name}: {_rows(late)} came late and {_is(late)} in no answer{taken.get(stream.name, '')}"
            if then.punctuation == FOREVER:
                yield f"{told}; the stream was ended for good with --seal."
            elif stream.punctuated_by is not None:
                yield f"{told}; its PUNCTUATED BY promised too early."
            elif stream.progress.external:
                yield f"{told}; a PUNCTUATE promised too early."
            elif stream.progress.behind is not None:
                yield f"{told}; they came after more than {stream.progress.behind} rows (SLACK … ROWS)."
            else:
                needed = render_duration(stream.slack + now.slack_needed)
                yield f"{told}; SLACK INTERVAL {needed} would have kept all."
        rejected = now.rejected - then.rejected
        if rejected > 0:
            place = f"rejects/stream/{file_name(stream.name)}"
            yield _sentence(
                home,
                after,
                f"rejects:{stream.name}",
                f"{stream.name}: {_rows(rejected)} rejected",
                place,
                kept=kept,
            )
    was, became = before.facts.get("rejected", {}), after.facts.get("rejected", {})
    for query in home.catalog.queries.values():
        fresh = {
            name: count
            for name, count in became.items()
            if derived_streams.owner_of(name) == query.operator_id
        }
        fresh = {name: more for name, count in fresh.items() if (more := count - was.get(name, 0)) > 0}
        if fresh:  # its own operator, those of SELECTs in its FROM, and those that make its pairs
            told = f"{query.definition.name}: its expressions failed on {_rows(sum(fresh.values()))}"
            listed = max(fresh, key=lambda name: fresh[name])
            place = f"rejects/query/{listed}"
            yield _sentence(home, after, f"failures:{listed}", told, place, kept=kept)


def _taken_in(home: Home, after: Manifest) -> dict[str, str]:
    """By stream of which queries WITH REVISIONS take late rows in: whether all its queries do, or which answers have them."""
    plan = plan_in_force(home, after)
    found = {}
    for stream in plan.streams:
        readers = [
            name
            for name, operator in plan.operators.items()
            if operator.stream == stream and plan.channels.get(name, "rows") in ("rows", "kept")
        ]
        revising = [plan.revisions[name] for name in readers if name in plan.revisions]
        if revising and len(revising) == len(readers) and not any(within is not None for within in revising):
            found[stream] = _WHOLLY
        elif revising:
            found[stream] = " but of queries WITH REVISIONS"
    return found


def closing_loss_report(rejects: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """One sentence for each query that failed on rows of its provisional closing; `rejects` has their reasons."""
    for query, reasons in rejects.items():
        rows = _rows(len(reasons))
        yield (
            f"{query}: its expressions failed on {rows} as its last windows closed, for instance: {reasons[0]}; "
            "a closing is provisional, so they are not stored (with --end-of-stream they are)."
        )


def _sentence(home: Home, after: Manifest, of: str, what: str, place: str, *, kept: bool) -> str:
    where = f"see {Path(home.store.root) / place}" if kept else "run with --home DIR to keep them"
    reason = _last_reason(home, after, of)
    return f"{what}{'' if reason is None else f', for instance: {reason}'}; {where}."


def _last_reason(home: Home, after: Manifest, of: str) -> str | None:
    """A reason of the newest that are kept; None where none are, since `retain` has passed them."""
    found = next(home.list_of(after, of).iterate(home.store.read, reverse=True), None)
    if found is None:
        return None
    _, entry = found
    file = pa.BufferReader(home.store.map(entry["name"]))
    return str(pq.read_table(file, columns=["reason"]).column("reason")[0])


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
