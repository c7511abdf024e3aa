"""The keys of joins whose rows are divided between tasks: what state tasks observed, by join, and the choice after every epoch.

The layouts are facts of the manifest: an epoch that is run again divides the same rows in the same way, and so does another driver. The averages that
they were chosen by are in memory only: another driver continues with the layouts, and changes them once it has measured by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Final

from headrace.adaptive.joins.hot_keys import UNDIVIDED, Division, HotKeys
from headrace.dataclass import dataclass
from headrace.observation import HeavyKey
from headrace.operators.base.operator import Operator
from headrace.operators.joins.hot_keys.key_layouts import SplitKey, divided, undivided
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.task_messages import StateReceipt
from headrace.runtime.plan import derived_streams, union_streams
from headrace.store.logs.manifest import Manifest
from headrace.time import Instant

SPLIT_KEYS: Final = "split keys"
"""In a manifest's facts: by join, the fields of each of its keys that has, or lately had, a layout of its own."""


def split_keys(manifest: Manifest) -> dict[str, tuple[SplitKey, ...]]:
    """By join, its keys with layouts of their own, as decided after the last epoch."""
    joins = manifest.facts.get(SPLIT_KEYS, {})
    return {name: tuple(SplitKey.of(fields) for fields in keys) for name, keys in joins.items()}


def task_loads(receipts: Sequence[StateReceipt], manifest: Manifest) -> dict[str, tuple[int, ...]]:
    """By join with keys that have much of some task's work, or that are divided, the rows and comparisons of each of several tasks."""
    names = {name for receipt in receipts for name in receipt.heavy} | manifest.facts.get(
        SPLIT_KEYS, {}
    ).keys()
    tasks = 1 + max((receipt.task for receipt in receipts), default=0)
    loads = {name: [0] * tasks for name in sorted(names if tasks > 1 else ())}
    for receipt in receipts if loads else ():
        for name in loads.keys() & receipt.operators.keys():
            seen = receipt.operators[name]
            loads[name][receipt.task] += seen.probes + seen.candidates
    return {name: tuple(of_tasks) for name, of_tasks in loads.items() if any(of_tasks)}


def _changed(
    join: Operator, keys: Iterable[SplitKey], wanted: dict[int, Division], since: int, last: Instant
) -> list[SplitKey]:
    """The keys of a join with other layouts from epoch `since` on; `last` is the greatest event time of its rows so far.

    Where probes are stored, a key is in one place again only once its rows of before it was divided have ended: rows of one place are not divided by epochs.
    """
    known = {key.key: key for key in keys}
    for key, division in wanted.items():
        slot = join.slot_of_key(key)
        before = known.get(key, SplitKey.whole(key, slot))
        taken = frozenset[int]().union(*(other.hashes for other in known.values()), before.hashes)
        layout = undivided(key, slot, since)
        if division.parts > 1:
            layout = divided(key, division.spread, division.parts, since, taken)
        if len(join.joined_sides) == 2 or not before.has_former(layout):
            known[key] = before.changed_to(layout, last)
    return list(known.values())


@dataclass(slots=True)
class SplitKeys:
    """The averages of joins in the driver of a hub that has up to `tasks` state tasks."""

    tasks: int
    _joins: dict[str, HotKeys] = field(default_factory=dict)

    def decided(self, manifest: Manifest, receipts: Sequence[StateReceipt], plan: EpochPlan) -> Manifest:
        """The manifest with the layouts for the next epoch; joins that were not observed keep theirs, while the plan has them."""
        loads = task_loads(receipts, manifest)
        if not loads and SPLIT_KEYS not in manifest.facts:
            return manifest
        before = {name: keys for name, keys in split_keys(manifest).items() if name in plan.operators}
        self._joins = {name: known for name, known in self._joins.items() if name in plan.operators}
        after = {}
        for name in sorted({*before, *(loads.keys() & plan.operators.keys())}):
            keys = before.get(name, ())
            seen = [key for receipt in receipts for key in receipt.heavy.get(name, ())]
            wanted = self.chosen(plan.operators[name], plan, keys, loads.get(name, ()), seen)
            if found := _after(manifest, plan, plan.operators[name], keys, wanted):
                after[name] = [key.fields for key in found]
        facts = {name: value for name, value in manifest.facts.items() if name != SPLIT_KEYS}
        return replace(manifest, facts={**facts, SPLIT_KEYS: after} if after else facts)

    def chosen(
        self,
        join: Operator,
        plan: EpochPlan,
        keys: Sequence[SplitKey],
        loads: Sequence[int],
        seen: Sequence[HeavyKey],
    ) -> dict[int, Division]:
        """What should change, of the keys of a join: by key, how its rows are to be divided."""
        in_force = {
            key.key: Division(key.current.spread, key.current.parts) for key in keys if key.current.parts > 1
        }
        if self.tasks == 1 or not can_be_divided(join, plan):
            return dict.fromkeys(in_force, UNDIVIDED)
        if not loads:
            return {}
        known = self._joins.setdefault(join.id, HotKeys())
        known.take(loads, together(seen, keys))
        return known.wanted(in_force, {key.key for key in keys if key.former})


def can_be_divided(join: Operator, plan: EpochPlan) -> bool:
    """Whether keys of a join can be divided: its inputs are streams, whose greatest event time so far is known."""
    return join.divides_keys and all(
        plan.streams[each.stream].using != derived_streams.USING and not each.time
        for each in union_streams.inputs_of(plan.streams[join.stream])
    )


def together(seen: Iterable[HeavyKey], keys: Sequence[SplitKey]) -> list[HeavyKey]:
    """What all tasks have seen, with the parts of each key as one; rows that are in all of its parts are counted once."""
    layout_of = {part: (key.key, layout) for key in keys for layout in key.layouts for part in layout.hashes}
    sums: dict[int, HeavyKey] = {}
    for part in seen:
        key, layout = layout_of.get(part.key, (part.key, undivided(part.key, 0, 0)))
        rows = [
            count if side == layout.spread else -(-count // layout.parts)
            for side, count in enumerate(part.rows)
        ]
        former = sums.get(key, HeavyKey(key, (0,) * len(rows), 0))
        both = tuple(one + other for one, other in zip(former.rows, rows, strict=True))
        sums[key] = HeavyKey(key, both, former.compared + part.compared)
    return list(sums.values())


def _after(
    manifest: Manifest,
    plan: EpochPlan,
    join: Operator,
    keys: Sequence[SplitKey],
    wanted: dict[int, Division],
) -> list[SplitKey]:
    """The keys of a join with layouts of their own in the next epoch."""
    progress, longest = manifest.find_operator(join.id), join.longest_stored
    if progress is not None and longest is not None:
        keys = [key.without_ended(progress.emitted_to, longest) for key in keys]
    inputs = union_streams.inputs_of(plan.streams[join.stream]) if wanted else ()
    last = max((manifest.stream(each.stream).greatest for each in inputs), default=0)
    return [key for key in _changed(join, keys, wanted, manifest.epoch + 1, last) if not key.is_undivided]
