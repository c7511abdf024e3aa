"""Loss report, in sentences: late rows and what would have kept them; rejected rows, a reason and their folder; keys that limited
joins have left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from headrace.runtime.backfill.completeness import plan_in_force
from headrace.runtime.home.file_names import file_name
from headrace.runtime.home.home import Home
from headrace.runtime.home.reject_files import read_rejects
from headrace.runtime.messages.task_messages import RejectsFile
from headrace.runtime.plan import derived_streams
from headrace.runtime.plan.adaptive.key_samples import samples_by_query
from headrace.store.logs.manifest import Manifest
from headrace.time import FOREVER, render_duration

_WHOLLY: Final = "wholly"


def loss_report(home: Home, before: Manifest, after: Manifest, *, persistent: bool) -> Iterator[str]:
    """One sentence for each stream with late rows, each stream and each query with rejected ones.

    Counted between two manifests. `persistent` False: the home is deleted with the run, so the reasons are shown instead of a path.
    """
    in_revisions = _taken_in(home, after)
    for stream in home.catalog.streams.values():
        then, now = before.stream(stream.name), after.stream(stream.name)
        late = now.late - then.late
        if late > 0 and in_revisions.get(stream.name) != _WHOLLY:
            message = f"{stream.name}: {_rows(late)} came late and {_is(late)} in no answer{in_revisions.get(stream.name, '')}"
            if then.punctuation == FOREVER:
                yield f"{message}; the stream was ended for good with --seal."
            elif stream.punctuated_by is not None:
                yield f"{message}; its PUNCTUATED BY promised too early."
            elif stream.progress.external:
                yield f"{message}; a PUNCTUATE promised too early."
            elif stream.progress.behind is not None:
                yield f"{message}; they came after more than {stream.progress.behind} rows (SLACK … ROWS)."
            else:
                needed = render_duration(stream.slack + now.slack_needed)
                yield f"{message}; SLACK INTERVAL {needed} would have kept all."
        rejected = now.rejected - then.rejected
        if rejected > 0:
            folder = f"rejects/stream/{file_name(stream.name)}"
            yield _sentence(
                home,
                after,
                f"rejects:{stream.name}",
                f"{stream.name}: {_rows(rejected)} rejected",
                folder,
                persistent=persistent,
            )
    samples = samples_by_query(after)
    for query in home.catalog.queries.values():
        if query.operator_id in samples:
            yield f"{query.definition.name}: {samples[query.operator_id].sentence}."
    was, became = before.facts.get("rejected", {}), after.facts.get("rejected", {})
    for query in home.catalog.queries.values():
        fresh = {
            name: count
            for name, count in became.items()
            if derived_streams.owner_of(name) == query.operator_id
        }
        fresh = {name: more for name, count in fresh.items() if (more := count - was.get(name, 0)) > 0}
        if fresh:  # its own operator, those of SELECTs in its FROM, and those that make its pairs
            message = f"{query.definition.name}: its expressions failed on {_rows(sum(fresh.values()))}"
            listed = max(fresh, key=lambda name: fresh[name])
            folder = f"rejects/query/{listed}"
            yield _sentence(home, after, f"failures:{listed}", message, folder, persistent=persistent)


def _taken_in(home: Home, after: Manifest) -> dict[str, str]:
    """By stream, whether all its queries are WITH REVISIONS, which accept late rows, or only some of its answers have them."""
    plan = plan_in_force(home, after)
    answered = {}
    for stream in plan.streams:
        readers = [
            planned
            for planned in plan.planned.values()
            if planned.operator.stream == stream and planned.channel in ("rows", "kept")
        ]
        revising = [planned.revisions for planned in readers if planned.revisions is not None]
        if revising and len(revising) == len(readers) and all(reader.within is None for reader in revising):
            answered[stream] = _WHOLLY
        elif revising:
            answered[stream] = " but of queries WITH REVISIONS"
    return answered


def closing_loss_report(rejects: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """One sentence for each query that failed on rows of its provisional closing; `rejects` has their reasons."""
    for query, reasons in rejects.items():
        rows = _rows(len(reasons))
        yield (
            f"{query}: its expressions failed on {rows} as its last windows closed, for instance: {reasons[0]}; "
            "a closing is provisional, so they are not stored (with --end-of-stream they are)."
        )


def _sentence(home: Home, after: Manifest, of: str, what: str, folder: str, *, persistent: bool) -> str:
    where = f"see {Path(home.store.root) / folder}" if persistent else "run with --home DIR to keep them"
    reason = _last_reason(home, after, of)
    return f"{what}{'' if reason is None else f', for instance: {reason}'}; {where}."


def _last_reason(home: Home, after: Manifest, of: str) -> str | None:
    """A reason of the newest that are stored; None where `retain` has expired all."""
    newest = next(home.list_of(after, of).iterate(home.store.read, reverse=True), None)
    if newest is None:
        return None
    _, entry = newest
    file = RejectsFile.of_entry(entry)
    return str(read_rejects(home.store, file.name, file.part, file.rows).column("reason")[0])


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
