"""The work of an epoch as pieces (reading a stream, filtering or aggregating its rows, a state), each with a label
for EXPLAIN and the operators that share it.

A stream is read once for all its operators; operators with equal groups aggregate its rows once; a family shares its panes.
The rules are those of the tasks (`operators.sharing.scan_sharing`, `operators.families.family`), so EXPLAIN shows what runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from typing import Literal as Choice

from headrace.algebra.expressions.expression_text import show
from headrace.dataclass import dataclass
from headrace.operators.base.operator import Operator
from headrace.operators.families.family import state_name
from headrace.operators.families.pane_queries import over_panes
from headrace.operators.query_index.index_cache import predicate_of
from headrace.operators.rows.row_pipeline import RowFilter, joins_of
from headrace.operators.sharing.routed_scans import first_filter
from headrace.operators.sharing.scan_sharing import SharingKind, groups
from headrace.operators.time_windows.pane_display import partials

Kind = Choice["read", "fold", "state"]
_LONGEST: Final = 140


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A piece of work: `name` is of the stream, of a sharing operator, or of the state; `users` are operators."""

    kind: Kind
    name: str
    label: str
    users: tuple[str, ...]
    stream: str

    @property
    def key(self) -> str:
        """Its name in observations."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Sharing:
    """All work; `places` has, by operator, the places of its work: the reading, its aggregation and its state.

    `keys`: places by name in observations.
    """

    works: tuple[WorkItem, ...]
    places: Mapping[str, tuple[int, ...]]
    keys: Mapping[str, int]

    def place_of(self, key: str) -> int | None:
        """The place of the work of an observation; None for work of dropped queries."""
        if key.startswith("fold "):  # the operators that share it may have changed since
            positions = self.places.get(key.removeprefix("fold "), ())
            return next((position for position in positions if self.works[position].kind == "fold"), None)
        return self.keys.get(key)


def sharing(
    operators: Mapping[str, Operator],
    channels: Mapping[str, object],
    titles: Mapping[str, str],
    union_inputs: Mapping[str, Iterable[str]],
    together: Sequence[Sequence[Operator]] = (),
) -> Sharing:
    """The work of operators.

    `together`: those that read streams of their own, and are scanned together nevertheless.

    `channels`: by operator, which rows of its stream it reads, such as the late ones; operators with different values read different
    rows. `titles`: names of streams in the text. `union_inputs`: the streams of each union. A stream that is read only in a union is
    read for the union's readers.
    """
    by_stream: dict[str, list[Operator]] = {}
    for operator in operators.values():
        by_stream.setdefault(operator.stream, []).append(operator)
    grouped = {operator.id for group in together for operator in group}
    shared = [*map(_fold_together, together), *_states(operators.values())]
    works: list[WorkItem] = []
    for stream, readers in by_stream.items():
        users = tuple(reader.id for reader in readers)
        works.append(
            WorkItem("read", stream, f"read {titles.get(stream, f'stream {stream}')}", users, stream)
        )
        works += _folds(stream, [reader for reader in readers if reader.id not in grouped], channels)
        works += [work for work in shared if work.stream == stream]
    places: dict[str, tuple[int, ...]] = {}
    for position, work in enumerate(works):
        for user in work.users:
            places[user] = (*places.get(user, ()), position)
    keys = {work.key: position for position, work in enumerate(works)}
    for stream in by_stream:
        for name in union_inputs.get(stream, ()):
            keys.setdefault(f"read {name}", keys[f"read {stream}"])
    return Sharing(tuple(works), places, keys)


def _folds(stream: str, readers: Iterable[Operator], channels: Mapping[str, object]) -> Iterator[WorkItem]:
    seeing: dict[object, list[Operator]] = {}
    for reader in readers:
        seeing.setdefault(channels.get(reader.id), []).append(reader)
    for rows, together in seeing.items():
        for how, operators in groups(together):
            label = f"{'' if rows is None else f'{rows}: '}{_fold_label(how, operators)}"
            yield WorkItem(
                "fold", operators[0].id, _truncated(label), tuple(reader.id for reader in operators), stream
            )


def _fold_label(how: SharingKind | Choice["together"], operators: Sequence[Operator]) -> str:
    first, scan_group = operators[0], over_panes(operators)
    if how == "selections":
        predicates = {
            predicate_of(selection)
            for operator in operators
            if (selection := operator.on_request) is not None
        }
        return f"match {len(predicates):,} condition{'s' * (len(predicates) > 1)} in one index, into bitmaps of rows"
    if how == "routed":
        filters = {first_filter(operator) for operator in operators}
        return f"match {len(filters):,} conditions in one index, and give each query its rows"
    if how == "together":
        return f"keep rows for {first.title} of a family, of which each query reads its own"
    if how == "rows":
        distinct = len({operator.row_steps for operator in operators})
        return f"keep rows for {first.title} of a family, once for each of {distinct:,} conditions"
    if not scan_group:
        return f"keep rows{_filter_and_joins(first)} for {first.title}"
    by = ", ".join(show(key.expression) for key in scan_group[0].keys) or "nothing (one group)"
    panes = {operator.panes for operator in scan_group}
    cells = dict.fromkeys(cell for operator in scan_group for cell in partials(operator))
    folded = f"fold by {by} into panes of {len(panes)} window{'s' * (len(panes) > 1)}: {', '.join(cells)}"
    if how in ("conditions", "values"):
        conditions = {predicate_of(operator) for operator in scan_group}
        return f"{_joins(first)}match {len(conditions):,} conditions in one index, {folded}"
    return f"{folded}{_filter_and_joins(first)}"


def _joins(operator: Operator) -> str:
    relations = _relations(operator)
    return f"join with {relations}, " if relations else ""


def _filter_and_joins(operator: Operator) -> str:
    filters = [show(step.predicate) for step in operator.row_steps if isinstance(step, RowFilter)]
    relations = _relations(operator)
    where = f" where {' and '.join(filters)}" if filters else ""
    return where + (f" with {relations}" if relations else "")


def _relations(operator: Operator) -> str:
    """The relations that the operator's rows are joined with, separated by commas."""
    return ", ".join(step.relation for step in joins_of(operator.row_steps))


def _fold_together(operators: Sequence[Operator]) -> WorkItem:
    """The scan of operators of which each reads streams of its own."""
    label = _fold_label("together", operators)
    return WorkItem(
        "fold", operators[0].id, _truncated(label), tuple(o.id for o in operators), operators[-1].stream
    )


def _states(operators: Iterable[Operator]) -> Iterator[WorkItem]:
    storing: dict[str, list[Operator]] = {}
    for operator in operators:
        storing.setdefault(state_name(operator), []).append(operator)
    for name, sharers in storing.items():
        label = sharers[0].together(sharers).state_label
        users = tuple(operator.id for operator in sharers)
        yield WorkItem("state", name, _truncated(label), users, sharers[-1].stream)


def _truncated(label: str) -> str:
    return label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"
