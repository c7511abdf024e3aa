"""Groups of operators that read streams of their own and are scanned together: queries of a family over results that no other query reads,
and joins of a family that read the same source streams. Found once for a plan and the operators that take part.

An operator is left out where something of its own decides which rows it gets: another channel, revisions, a sample, a stored relation.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Final

from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.operators.base.operator import Operator
from headrace.operators.families.family import state_name
from headrace.operators.families.numbering import number_of
from headrace.operators.sharing.scan_sharing import ScanGroup
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.task_messages import Participants
from headrace.runtime.plan import derived_streams, union_streams
from headrace.runtime.plan.union_streams import UnionInput
from headrace.runtime.progress.plan_index import PlanIndex
from headrace.runtime.tasks.scan.stream_monitor import Watch
from headrace.runtime.tasks.scan.stream_readers import columns_of
from headrace.schema import Field

LEAST: Final = 2
"""Operators of a group, at least."""


@dataclass(frozen=True, slots=True, eq=False)
class ReaderGroup:
    """Operators that are scanned together, in the plan's order, and the columns that each reads."""

    operators: tuple[Operator, ...]
    columns: frozenset[str]
    joins: bool

    def scanner(self) -> ScanGroup:
        """A scanner for one task."""
        from headrace.operators.sharing.join_rows import JoinRows  # noqa: PLC0415 - of queries over results
        from headrace.operators.sharing.reader_rows import ReaderRows  # noqa: PLC0415

        return JoinRows.of(self.operators) if self.joins else ReaderRows.of(self.operators)


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Reading of a stream in a group, by the operator with this query number. `union_input` and `input_number`: that of its union, if
    it reads one. Without a query number the rows are for all operators of the group.
    """

    group: ReaderGroup
    query: int | None
    union_input: UnionInput | None = None
    input_number: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ReaderGroups:
    """The groups of a plan. `of_results`: by stream of results all who read it, if each is in a group. `of_inputs`: by stream who reads it
    as an input of `unions`, which are those that groups read.
    """

    of_results: Mapping[str, Sequence[Target]] = field(default_factory=dict)
    of_inputs: Mapping[str, Sequence[Target]] = field(default_factory=dict)
    unions: frozenset[str] = frozenset()


NO_GROUPS: Final = ReaderGroups()
_known: Final[Recent[object, tuple[EpochPlan, ReaderGroups]]] = Recent(8)


def reader_groups(index: PlanIndex, taking_part: Participants, isolated: Collection[str]) -> ReaderGroups:
    """The groups of the operators that take part, without isolated ones."""
    key = (
        id(index.plan),
        frozenset(taking_part.named),
        taking_part.followers,
        frozenset(taking_part.absent),
        frozenset(isolated),
    )
    known = _known.get(key)
    if known is None:
        known = index.plan, _groups(index, taking_part, isolated)
        _known.put(key, known)
    return known[1]


def groups_of(index: PlanIndex) -> list[tuple[Operator, ...]]:
    """The groups of a plan of which all operators take part."""
    known = reader_groups(index, Participants(followers=True), frozenset())
    targets = itertools.chain(*known.of_results.values(), *known.of_inputs.values())
    return [group.operators for group in {id(target.group): target.group for target in targets}.values()]


def _groups(index: PlanIndex, taking_part: Participants, isolated: Collection[str]) -> ReaderGroups:
    readers: dict[str, Sequence[Operator]] = {}
    members: dict[object, list[Operator]] = {}
    key_of: dict[str, object] = {}
    for stream, operators in index.readers.items():
        taking = [operator for operator in operators if operator.id in taking_part]
        if taking:
            readers[stream] = taking
        for operator in taking if len(taking) == 1 else ():  # several over one stream share its scan
            key = None if operator.id in isolated else _key(index.plan, operator)
            if key is not None:
                members.setdefault(key, []).append(operator)
                key_of[operator.id] = key
    groups = {key: _group(same) for key, same in members.items() if len(same) >= LEAST}
    group_of = {id_: groups[key] for id_, key in key_of.items() if key in groups}
    unions = frozenset(
        union
        for union, of_union in readers.items()
        if index.plan.streams[union].using == union_streams.USING and of_union[0].id in group_of
    )
    of_inputs = _of_inputs(index, {union: readers[union][0] for union in unions}, group_of)
    of_results = {}
    for definition in index.results_of.values():
        direct = readers.get(definition.name, ())
        indirect = {union for union, _, _ in index.unions_with.get(definition.name, ()) if union in readers}
        in_groups = all(operator.id in group_of for operator in direct) and indirect <= unions
        if in_groups and definition.archive != "copy" and not _is_watched(definition):
            targets = [Target(group_of[operator.id], number_of(operator.id)) for operator in direct]
            of_results[definition.name] = (*targets, *of_inputs.get(definition.name, ()))
    return ReaderGroups({name: read for name, read in of_results.items() if read}, of_inputs, unions)


def _key(plan: EpochPlan, operator: Operator) -> object | None:
    """Equal for operators that can be scanned together; None for one that has to be scanned alone."""
    planned = plan.planned[operator.id]
    own = operator.relations or planned.revisions or planned.quality
    if planned.channel != "rows" or own or operator.family_key is None:
        return None
    stream, columns = plan.streams[operator.stream], columns_of(operator)
    if stream.using == derived_streams.USING:
        return None if operator.family_rows is None else (state_name(operator), _typed(stream, columns))
    if stream.using != union_streams.USING or not operator.makes_pairs:
        return None
    inputs = (
        (_made_by_each(plan, part.stream), part.columns, part.time, _typed(plan.streams[part.stream], read))
        for part in union_streams.inputs_of(stream)
        for read in (part.input_columns(columns),)
    )
    return state_name(operator), columns, *inputs


def _typed(stream: StreamDefinition, columns: frozenset[str]) -> frozenset[Field]:
    """The columns of a stream with their types: results of each query have their own, and what only a condition reads is not in the family."""
    return frozenset(field for field in stream.schema if field.name in columns)


def _made_by_each(plan: EpochPlan, stream: str) -> str:
    """The name of a source stream; empty for results, of which each query reads its own."""
    return "" if plan.streams[stream].using == derived_streams.USING else stream


def _group(operators: Sequence[Operator]) -> ReaderGroup:
    columns = columns_of(operators[0])
    return ReaderGroup(tuple(operators), columns, operators[0].makes_pairs)


def _of_inputs(
    index: PlanIndex, readers: Mapping[str, Operator], group_of: Mapping[str, ReaderGroup]
) -> dict[str, tuple[Target, ...]]:
    """By input stream, who reads it through unions with one reader each; of a source one target for all of a group."""
    targets: dict[str, dict[object, Target]] = {}
    for union, reader in readers.items():
        group = group_of[reader.id]
        for number, part in enumerate(union_streams.inputs_of(index.plan.streams[union])):
            query = None if _made_by_each(index.plan, part.stream) else number_of(reader.id)
            target = Target(group, query, part, number)
            targets.setdefault(part.stream, {}).setdefault((id(group), number, query), target)
    return {stream: tuple(read.values()) for stream, read in targets.items()}


def _is_watched(stream: StreamDefinition) -> bool:
    """Whether more is done with a stream's rows than to pass them to its readers."""
    return Watch.of(stream, {}, (), replay=False).reads_rows
