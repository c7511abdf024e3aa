"""The agenda of a state task: from which punctuation on each state has something to do without new rows.

An operator that nothing came to, and for which punctuation changes nothing, is not visited. When an operator has been visited
it knows the next instant at which it is due (`due_after`); the agenda has these instants in a heap for each clock, so that an
epoch costs what is due in it. It is a cache of the process: it holds for the execution that follows the one which left it,
and is made afresh, with every state due that has rows, after any other. A state without rows has nothing to do, however many
queries were registered since the last epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from heapq import heappop, heappush
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Final

from headrace.dataclass import dataclass
from headrace.operators.base.operator import Advance, Operator, Sections
from headrace.operators.families.family import state_name
from headrace.operators.joins.caches.caching import JoinMemory
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.messages.stream_progress import Clock
from headrace.runtime.messages.task_messages import StateMessage
from headrace.runtime.progress.plan_index import PlanIndex
from headrace.runtime.tasks.state.round_progress import RoundProgress
from headrace.runtime.tasks.state.state_runs import TaskRun
from headrace.time import BEGINNING, FOREVER, Instant

if TYPE_CHECKING:
    from headrace.runtime.tasks.state.compaction import MergedAhead

_TASKS: Final = 64
_SOON: Final = 2
"""Epochs between rows of a busy state, at most: those of other streams may be between."""


@dataclass(slots=True)
class Agenda:
    """When the states of a task are due, in the punctuation of their clock."""

    index: PlanIndex
    due_at: dict[str, Instant] = field(default_factory=dict)
    """The next visit of each state that has one."""
    heaps: dict[Clock, list[tuple[Instant, str]]] = field(default_factory=dict)
    """An entry for each such state (`queued`), at its visit or before it, and some that count no longer."""
    queued: dict[str, tuple[Clock, Instant]] = field(default_factory=dict)
    execution: str = ""
    """The execution that left it."""
    checked: set[str] = field(default_factory=set)
    """Runs without many rows of dropped queries."""
    born: int = 0
    fed: dict[str, int] = field(default_factory=dict)
    """The epoch in which each state last got rows."""
    busy: frozenset[str] = frozenset()
    """States that got rows now and soon before, and probably get more: they are due at the next punctuation, not computed."""
    visited: dict[str, int] = field(default_factory=dict)
    """The epoch in which each state was last visited, since epoch `born`; the last one visited is the last."""

    memories: dict[str, JoinMemory] = field(default_factory=dict)
    """What joins remember, by state."""
    moved: dict[str, tuple[Instant, int]] = field(default_factory=dict)
    """Of each source by which rows expire unvisited its punctuation, and the epoch since which it has that."""

    ahead: MergedAhead | None = None
    """What was merged since the last epoch; None where nothing was decided."""

    @staticmethod
    def of(index: PlanIndex, epoch: int, stored: Collection[str]) -> Agenda:
        """An agenda with every state that has stored rows due at once, in this epoch; others are due once rows come."""
        agenda = Agenda(index, born=epoch)
        agenda.schedule({state: BEGINNING for state in index.by_state if state in stored})
        return agenda

    def under(self, index: PlanIndex, stored: Collection[str]) -> Agenda:
        """The agenda under another plan: a state with stored rows whose operators have changed is due at once."""
        former, self.index = self.index, index
        self.checked.clear()
        self.ahead = None
        for known in (self.due_at, self.visited, self.fed):
            for state in known.keys() - index.by_state.keys():
                known.pop(state)
        changed = [name for name, owners in index.by_state.items() if former.by_state.get(name) != owners]
        for state in self.memories.keys() - index.by_state.keys() | set(changed):
            self.memories.pop(state, None)
        for state in changed:
            self.queued.pop(state, None)  # its clock may be another one
        self.schedule({state: BEGINNING if state in stored else FOREVER for state in changed})
        return self

    def schedule(self, due_at: Mapping[str, Instant]) -> None:
        """Set the instants from which states are due; `FOREVER`: never."""
        for state, at in due_at.items():
            if at == FOREVER:
                self.due_at.pop(state, None)
                continue
            self.due_at[state] = at
            if state not in self.queued or at < self.queued[state][1]:
                self._queue(state, at)

    def _queue(self, state: str, at: Instant) -> None:
        clock = self.index.clock_of(self.index.by_state[state][0].stream)  # their streams have one clock
        self.queued[state] = clock, at
        heappush(self.heaps.setdefault(clock, []), (at, state))

    def _first(self, clock: Clock) -> Instant:
        """The first visit by a clock, which is then at the top of its heap; entries before their visit are moved there."""
        heap = self.heaps.get(clock, [])
        while heap:
            at, state = heap[0]
            counts, due = self.queued.get(state) == (clock, at), self.due_at.get(state)
            if counts and due == at:
                return at
            heappop(heap)
            if counts:
                del self.queued[state]
                if due is not None:
                    self._queue(state, due)
        return FOREVER

    def plan_visit(
        self,
        progress: RoundProgress,
        operators: Sequence[Operator],
        runs: Sequence[Sections],
        advance: Advance,
    ) -> None:
        """Schedule the next visit of a state that is visited: operators stored there have made this advance, `runs` are theirs after it.

        The first of all that is scheduled in a visit counts. Of a busy state nothing is computed: when no more rows come, one
        visit without any finds out.
        """
        state, due_after = state_name(operators[0]), FOREVER
        if state in self.busy:
            due_after = min(advance.punctuation + 1, FOREVER)
        elif advance.punctuation < FOREVER:
            due_after = operators[0].together(operators).due_after(runs, advance)
        self.schedule({state: min(self.due_at.get(state, FOREVER), due_in(progress, operators, due_after))})

    def due(self, punctuations: Mapping[Clock, Instant]) -> Iterator[str]:
        """The states that are due at these punctuations; they are no longer scheduled."""
        for clock, punctuation in punctuations.items():
            while (at := self._first(clock)) <= punctuation and at < FOREVER:
                _, state = heappop(self.heaps[clock])
                del self.due_at[state], self.queued[state]
                yield state

    def feed(self, states: Collection[str], epoch: int) -> None:
        """Begin an epoch in which these states get rows. Those that are never due are not busy."""
        self.busy = frozenset(
            state for state in states if state in self.due_at and epoch <= self.fed.get(state, -_SOON) + _SOON
        )
        self.fed.update(dict.fromkeys(states, epoch))

    def begin(self, states: Iterable[str], epoch: int) -> None:
        """Begin the visits of an epoch: these states are no longer scheduled."""
        for state in states:
            self.visited.pop(state, None)
            self.visited[state] = epoch
            self.due_at.pop(state, None)

    def touched_since(self, epoch: int) -> Iterator[str] | None:
        """The states of which rows may have expired since an epoch: visited after it, or expiring unvisited as a source moved
        on after it. None: any may.
        """
        if self.born > epoch:
            return None
        visited = takewhile(lambda state: self.visited[state] > epoch, reversed(self.visited))
        expiring = (
            state
            for state, sources in self.index.expiring.items()
            if any(self.moved.get(source, (BEGINNING, epoch + 1))[1] > epoch for source in sources)
        )
        return chain(visited, expiring)

    def take_merged(self) -> MergedAhead | None:
        """What was merged since the last epoch; once."""
        ahead, self.ahead = self.ahead, None
        return ahead

    def see(self, progress: RoundProgress) -> None:
        """Take note of the sources that have moved on in an epoch."""
        for source in self.index.expiring_by:
            punctuation = progress.now.punctuation(source)
            if source not in self.moved or self.moved[source][0] != punctuation:
                self.moved[source] = punctuation, progress.message.epoch

    def next_due(self) -> dict[Clock, Instant]:
        """The first instant at which a state of each clock is due; clocks without one are left out."""
        first = {clock: self._first(clock) for clock in self.heaps}
        return {clock: at for clock, at in first.items() if at < FOREVER}


_agendas: Final[Recent[tuple[str, int, int], Agenda]] = Recent(_TASKS)
"""By home and slots."""


def agenda_for(index: PlanIndex, message: StateMessage, runs: Sequence[TaskRun]) -> Agenda:
    """The agenda that the execution before the message's left in this process, or one with every state of these runs due.

    It holds for none until it is left again: an execution that fails has changed it.
    """
    agenda = _agendas.get(_slots(message))
    if agenda is None or not message.after or agenda.execution != message.after:
        return Agenda.of(index, message.epoch, _states_in(runs))
    agenda.execution = ""
    return agenda if agenda.index is index else agenda.under(index, _states_in(runs))


def _states_in(runs: Sequence[TaskRun]) -> frozenset[str]:
    return frozenset[str]().union(*(run.states for run in runs))


def leave(agenda: Agenda, message: StateMessage) -> None:
    """Leave the agenda for the execution that follows the message's."""
    agenda.execution = message.execution
    _agendas.put(_slots(message), agenda)


def _slots(message: StateMessage) -> tuple[str, int, int]:
    return message.root, message.low, message.high


def visits(
    progress: RoundProgress,
    agenda: Agenda | None,
    runs: Sequence[TaskRun],
    deltas: Mapping[str, Sequence[Sections]],
) -> dict[str, list[Operator]]:
    """The states to visit in a round, in the plan's order, with the operators that take part.

    They are those with new rows; of those stored in `runs`, the ones with operators whose progress is their own, and the ones
    that are due; without an agenda all.
    """
    message, index = progress.message, progress.index
    due = {state_name(index.plan.operators[name]) for name in message.emitted_to}
    if not message.followers:
        states = due
    elif agenda is None:
        states = set(index.by_state)
    else:
        named = message.punctuation.keys() | message.isolated
        due |= {state_name(index.plan.operators[name]) for name in named}
        due |= {state_name(reader) for name in message.moved for reader in index.readers.get(name, ())}
        fed = {name for name, parts in deltas.items() if any(map(_has_rows, parts))}
        agenda.feed(fed, message.epoch)
        states = fed | (due & _states_in(runs) if due else due)
        clocks = (clock for clock in agenda.heaps if clock.level == message.level)
        states.update(agenda.due({clock: progress.punctuation_of(clock) for clock in clocks}))
    visited = {}
    for name in index.in_order(states):
        taking_part: Sequence[Operator] = index.by_state[name]
        if message.resting or not message.followers:
            taking_part = [operator for operator in taking_part if progress.takes_part(operator.id)]
        if taking_part:
            visited[name] = list(taking_part)
    if agenda is not None:
        agenda.see(progress)
        agenda.begin(visited, message.epoch)
    return visited


def _has_rows(sections: Sections) -> bool:
    return any(table.num_rows for table in sections.values())


def due_in(progress: RoundProgress, operators: Sequence[Operator], due_after: Instant) -> Instant:
    """When a visited state is due again, by its clock; `due_after` is the first instant for its operators, which advance together.

    At once where their progress is not that of their stream yet.
    """
    message, stream = progress.message, operators[0].stream
    clock = progress.index.clock_of(stream)
    if not message.followers or clock.level > message.level or not clock.sources:
        return BEGINNING
    if (message.emitted_to or message.punctuation) and any(
        operator.id in message.emitted_to or operator.id in message.punctuation for operator in operators
    ):
        return BEGINNING
    if due_after == FOREVER:
        return FOREVER
    return max(due_after + progress.index.behind(stream), progress.punctuation_of(clock) + 1)
