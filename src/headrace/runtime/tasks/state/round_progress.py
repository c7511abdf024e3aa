"""Progress in one round of an epoch, as a state task computes it from its message: which operators take part, and from
which to which instant each advances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from headrace.dataclass import dataclass
from headrace.operators.base.operator import Advance, Operator
from headrace.operators.joins.key_promises import KeyPromises
from headrace.operators.time_windows.group_punctuation import GroupAdvance
from headrace.runtime.messages.stream_progress import Clock, StreamProgress
from headrace.runtime.messages.task_messages import StateMessage, StreamReceipt
from headrace.runtime.plan import derived_streams, union_streams
from headrace.runtime.progress.frontier import Frontier
from headrace.runtime.progress.group_progress import bounds_by, group_advance
from headrace.runtime.progress.plan_index import PlanIndex
from headrace.runtime.progress.punctuation import after_scans
from headrace.runtime.progress.union_progress import made_of
from headrace.time import FOREVER, Instant


@dataclass(frozen=True, slots=True)
class RoundProgress:
    """The frontier `now`, and the one `before` the epoch: a stream advances in the round of its level."""

    index: PlanIndex
    message: StateMessage
    now: Frontier
    before: Frontier
    sources: Frontier
    """The frontier after the first level of the execution."""
    follows: bool = False
    """Whether the progress of all results and unions is only that of the sources."""
    by_itself: frozenset[str] = frozenset()
    """The streams of which progress depends on that of operators with their own."""
    _advances: dict[tuple[object, ...], Advance] = field(default_factory=dict)
    """By what they depend on: thousands of operators share one."""
    _of_streams: dict[str, Advance] = field(default_factory=dict)
    """By stream, where an operator's own facts decide nothing."""
    _afters: dict[object, Advance] = field(default_factory=dict)
    """The same of the advances by which rows expire."""

    @staticmethod
    def of(index: PlanIndex, message: StateMessage, after: Mapping[str, StreamProgress]) -> RoundProgress:
        """The progress of a message's round; `after` is that of its streams after the scans."""
        operators = {**message.resting, **message.emitted_to}
        origin = message.origin
        if origin is None:
            before = Frontier(index, message.streams, operators)
        else:
            streams = {name: StreamProgress(at) for name, at in origin.streams.items()}
            before = Frontier(index, streams, origin.operators)
        now = Frontier(index, after, operators)
        by_itself = index.downstream((*operators, *before.operators))
        follows = not by_itself and not any(map(index.is_made, (*now.streams, *before.streams)))
        return RoundProgress(index, message, now, before, now, follows, frozenset(by_itself))

    def next_level(self, seen: Mapping[str, StreamReceipt]) -> RoundProgress:
        """The progress of the level above, which has read these streams of results."""
        now, message = self.sources, replace(self.message, level=self.message.level + 1)
        if seen:
            read = {
                name: StreamProgress(
                    self.before.punctuation(name), min_punctuation=self.sources.punctuation(name)
                )
                for name in seen
            }
            streams = self.index.plan.streams
            after = after_scans(streams, read, seen)
            for name in read:
                if made_of(streams[name]):
                    after[name] = replace(after[name], max_event_time=self.sources.now(name))
            now = Frontier(self.index, {**now.streams, **after}, now.operators)
        return RoundProgress(
            self.index, message, now, self.before, self.sources, self.follows and not seen, self.by_itself
        )

    def takes_part(self, operator: str) -> bool:
        """Whether an operator takes part."""
        message = self.message
        return operator in message.emitted_to or (message.followers and operator not in message.resting)

    def emitted_to(self, operator: Operator) -> Instant:
        """The instant up to which an operator has emitted."""
        for emitted in (self.message.emitted_to, self.message.resting):
            if operator.id in emitted:
                return emitted[operator.id]
        return self.before.punctuation(operator.stream)

    def punctuation(self, stream: str) -> Instant:
        """The punctuation of a stream in this round."""
        advances = self.index.clock_of(stream).level <= self.message.level
        return (self.now if advances else self.before).punctuation(stream)

    def promises(self, stream: str) -> Mapping[str, Instant]:
        """The promises for groups of a stream's rows in this round."""
        definition = self.index.plan.streams[stream]
        if derived_streams.pairs_in(definition) is None:
            return self.now.progress(stream).groups
        advances = self.index.clock_of(stream).level <= self.message.level
        return derived_streams.promises(definition, (self.now if advances else self.before).punctuation)

    def groups(self, operator: Operator) -> GroupAdvance | None:
        """The advance of an operator's groups whose punctuation is beyond their stream's."""
        named, fixed = self.message.emitted_to, self.message.punctuation
        heeds = operator.id in named and operator.id not in fixed and not self.message.final
        promised = self.promises(operator.stream) if heeds else {}
        before = self.message.group_punctuations.get(operator.id, {})
        rule = derived_streams.promising(self.index.plan.streams[operator.stream])
        return group_advance(operator, rule, before, promised)

    def punctuation_of(self, clock: Clock) -> Instant:
        """The punctuation of the sources of a clock."""
        return min((self.now.punctuation(source) for source in clock.sources), default=FOREVER)

    def advance(self, operator: Operator) -> Advance:
        """The advance of an operator that takes part."""
        stream = operator.stream
        if self._is_of_stream(operator):
            if stream not in self._of_streams:
                self._of_streams[stream] = self._advance(operator)
            return self._of_streams[stream]
        return self._advance(operator)

    def advance_of_all(self, state: str) -> Advance | None:
        """The advance of all operators of a state, if none has facts or a stream of its own."""
        first = self.index.by_state[state][0]
        if self.index.stream_of(state) is None or not self._is_of_stream(first):
            return None
        return self.advance(first)

    def _is_of_stream(self, operator: Operator) -> bool:
        """Whether no fact of an operator decides its advance, but its stream alone."""
        message = self.message
        named = (
            message.emitted_to or message.resting or message.punctuation or message.provisionally_emitted_to
        )
        return not (named or message.damage or operator.makes_pairs)

    def _advance(self, operator: Operator) -> Advance:
        message, stream = self.message, operator.stream
        punctuation = message.punctuation.get(operator.id)
        provisional = message.provisionally_emitted_to.get(operator.id)
        emitted = message.emitted_to.get(operator.id, message.resting.get(operator.id))
        key = (self._driver_of(stream), emitted, punctuation, provisional)
        advance = self._advances.get(key)
        if advance is None:
            emitted_to = self.emitted_to(operator)
            inputs = self._inputs(stream) if punctuation is None and not message.final else ()
            if punctuation is None:
                punctuation = FOREVER if message.final else self.punctuation(stream)
            punctuation = max(emitted_to, punctuation)
            ends = emitted_to < punctuation == FOREVER
            max_event_time = self.now.progress(stream).max_event_time
            advance = Advance(emitted_to, punctuation, max_event_time, ends, inputs, provisional)
            self._advances[key] = advance
        if operator.id in message.damage:
            return replace(advance, damage=message.damage[operator.id])
        return self._of_join(operator, advance) if operator.makes_pairs else advance

    def _of_join(self, operator: Operator, advance: Advance) -> Advance:
        """The advance of a join, with promises for keys if it heeds them, the share of keys that it joins, bounds that were found, and
        keys that are divided.
        """
        heeds = operator.heeds_key_promises and advance.input_punctuations
        promises = self._key_promises(operator.stream) if heeds else {}
        shares = self.message.key_shares.get(operator.id)
        bounds = self.message.partner_bounds.get(operator.id, ())
        keys = self.message.split_keys.get(operator.id, ())
        if not promises and shares is None and not bounds and not keys:
            return advance
        shares = shares or advance.key_shares
        return replace(
            advance, key_promises=promises, key_shares=shares, partner_bounds=bounds, split_keys=keys
        )

    def _key_promises(self, stream: str) -> dict[int, KeyPromises]:
        """By input of a union, its promises for groups of rows."""
        promises = {}
        for number, part in enumerate(union_streams.inputs_of(self.index.plan.streams[stream])):
            rule, groups = (
                self.index.plan.streams[part.stream].progress,
                self.now.progress(part.stream).groups,
            )
            if groups:
                required = () if rule.patterns else rule.groups
                promises[number] = KeyPromises(dict(part.columns), groups, bounds_by(rule), required)
        return promises

    def after(self, operator: Operator) -> Advance:
        """The advance by which an operator's rows expire: up to the instant up to which it has emitted."""
        key = self._shared_with(operator)
        if key is None:
            return self._after_alone(operator)
        after = self._afters.get(key)
        if after is None:
            after = self._afters[key] = self._after_alone(operator)
        return after

    def _after_alone(self, operator: Operator) -> Advance:
        if self.takes_part(operator.id):
            advance = self.advance(operator)
            return Advance(
                advance.punctuation,
                advance.punctuation,
                advance.max_event_time,
                input_punctuations=advance.input_punctuations,
                key_promises=advance.key_promises,
                key_shares=advance.key_shares,
                partner_bounds=advance.partner_bounds,
                damage=advance.damage,
            )
        emitted_to, damage = self.emitted_to(operator), self.message.damage.get(operator.id)
        max_event_time = self.now.progress(operator.stream).max_event_time
        return Advance(emitted_to, emitted_to, max_event_time, damage=damage)

    def _shared_with(self, operator: Operator) -> object | None:
        """A key that operators with the same advance have; None for an operator whose own facts decide it."""
        message = self.message
        if message.followers and self._is_of_stream(operator):
            return operator.stream
        if message.emitted_to or message.resting or message.punctuation or message.provisionally_emitted_to:
            return None
        own = {**message.key_shares, **message.partner_bounds, **message.damage}
        if operator.heeds_key_promises or operator.id in own:
            return None
        return self._driver_of(operator.stream) if message.followers else None

    def _driver_of(self, stream: str) -> object:
        """What determines the progress of a stream: equal for streams with equal progress."""
        if self.follows and self.index.is_made(stream):
            return self.index.driver_of(stream)
        read = self.now.streams.get(stream)
        definition = self.index.plan.streams[stream]
        parts = union_streams.inputs_of(definition) if definition.using == union_streams.USING else ()
        if (
            stream in self.by_itself
            or stream in self.before.streams
            or any(part.stream in self.now.streams and self.index.is_made(part.stream) for part in parts)
        ):
            return stream
        driver = self.index.driver_of(stream)
        return driver if read is None else (driver, read.punctuation, read.max_event_time)

    def _inputs(self, stream: str) -> tuple[Instant, ...]:
        """The punctuation of each input of a union; none for other streams."""
        definition = self.index.plan.streams[stream]
        if definition.using != union_streams.USING:
            return ()
        return tuple(self.punctuation(part.stream) for part in union_streams.inputs_of(definition))
