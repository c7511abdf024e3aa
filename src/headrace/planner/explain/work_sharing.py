"""What runs once for whom? The work of an epoch as pieces, each with the operators that share it.

A stream is read once for all its operators; those that group alike fold its rows once; those of one family keep their
panes together. The same rules as in the tasks decide (`operators.foldings`, `operators.family`), so what is told is what
runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from typing import Literal as Choice

from headrace.algebra.expressions.expression_text import show
from headrace.operators.base.operator import Operator
from headrace.operators.families.cohort import over_panes
from headrace.operators.families.family import state_name
from headrace.operators.query_index.predicate_index import predicate_of
from headrace.operators.rows.row_pipeline import RowFilter, joins_of
from headrace.operators.sharing.routed_scans import first_filter
from headrace.operators.sharing.scan_sharing import SharingKind, groups
from headrace.operators.time_windows.pane_display import partials

Kind = Choice["read", "fold", "state"]
_LONGEST: Final = 140


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of work: `name` is the stream's, that of an operator which shares the fold, or the state's. `users` are operators."""

    kind: Kind
    name: str
    label: str
    users: tuple[str, ...]
    stream: str

    @property
    def key(self) -> str:
        """As observations name it."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Sharing:
    """All work; `places` has, by operator, the places of what it shares: the reading, its fold and its state.

    `keys`: places by what observations call the work.
    """

    works: tuple[Work, ...]
    places: Mapping[str, tuple[int, ...]]
    keys: Mapping[str, int]

    def place_of(self, key: str) -> int | None:
        """Where the work is that an observation names; None for that of queries that are no more."""
        if key.startswith("fold "):  # by any of those that share it: others may have come or gone since
            mine = self.places.get(key.removeprefix("fold "), ())
            return next((place for place in mine if self.works[place].kind == "fold"), None)
        return self.keys.get(key)


def sharing(
    operators: Mapping[str, Operator],
    channels: Mapping[str, object],
    titles: Mapping[str, str],
    met: Mapping[str, Iterable[str]],
) -> Sharing:
    """The work of operators.

    `apart`: operators with another value see other rows of their stream. `titles`: how streams are named to people. `met`: of
    streams that are read together those that they are. One that nobody reads by itself is read for those who read it so.
    """
    by_stream: dict[str, list[Operator]] = {}
    for operator in operators.values():
        by_stream.setdefault(operator.stream, []).append(operator)
    works: list[Work] = []
    for stream, readers in by_stream.items():
        users = tuple(each.id for each in readers)
        works.append(Work("read", stream, f"read {titles.get(stream, f'stream {stream}')}", users, stream))
        works += _folds(stream, readers, channels)
        works += _states(stream, readers)
    places: dict[str, tuple[int, ...]] = {}
    for place, work in enumerate(works):
        for user in work.users:
            places[user] = (*places.get(user, ()), place)
    keys = {work.key: place for place, work in enumerate(works)}
    for stream in by_stream:
        for member in met.get(stream, ()):
            keys.setdefault(f"read {member}", keys[f"read {stream}"])
    return Sharing(tuple(works), places, keys)


def _folds(stream: str, readers: Iterable[Operator], channels: Mapping[str, object]) -> Iterator[Work]:
    seeing: dict[object, list[Operator]] = {}
    for each in readers:
        seeing.setdefault(channels.get(each.id), []).append(each)
    for rows, together in seeing.items():
        for how, operators in groups(together):
            label = f"{'' if rows is None else f'{rows}: '}{_fold_label(how, operators)}"
            yield Work("fold", operators[0].id, _cut(label), tuple(each.id for each in operators), stream)


def _fold_label(how: SharingKind, operators: Sequence[Operator]) -> str:
    first, scan_group = operators[0], over_panes(operators)
    if how == "selections":
        asked = {predicate_of(each) for member in operators if (each := member.on_request) is not None}
        return f"match {len(asked):,} condition{'s' * (len(asked) > 1)} in one index, into bitmaps of rows"
    if how == "routed":
        filters = {first_filter(member) for member in operators}
        return f"match {len(filters):,} conditions in one index, and give each query its rows"
    if not scan_group:
        return f"keep rows{_filter(first)} for {first.title}"
    by = ", ".join(show(key.expression) for key in scan_group[0].keys) or "nothing (one group)"
    panes = {member.panes for member in scan_group}
    cells = dict.fromkeys(cell for member in scan_group for cell in partials(member))
    folded = f"fold by {by} into panes of {len(panes)} window{'s' * (len(panes) > 1)}: {', '.join(cells)}"
    if how == "conditions":
        conditions = {predicate_of(member) for member in scan_group}
        return f"{_joined(first)}match {len(conditions):,} conditions in one index, {folded}"
    return f"{folded}{_filter(first)}"


def _joined(operator: Operator) -> str:
    asked = [step.relation for step in joins_of(operator.row_steps)]
    return f"join with {', '.join(asked)}, " if asked else ""


def _filter(operator: Operator) -> str:
    kept = [show(step.predicate) for step in operator.row_steps if isinstance(step, RowFilter)]
    joined = [step.relation for step in joins_of(operator.row_steps)]
    where = f" where {' and '.join(kept)}" if kept else ""
    return where + (f" with {', '.join(joined)}" if joined else "")


def _states(stream: str, readers: Iterable[Operator]) -> Iterator[Work]:
    keeping: dict[str, list[Operator]] = {}
    for each in readers:
        keeping.setdefault(state_name(each), []).append(each)
    for name, operators in keeping.items():
        label = operators[0].state_label
        yield Work("state", name, _cut(label), tuple(each.id for each in operators), stream)


def _cut(label: str) -> str:
    return label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"
