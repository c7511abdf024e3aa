"""The share of keys that each join with a limit of rows joins, decided after every epoch from the rows that it stores; and how many
combinations it has not found, with the error of that number.

The shares are facts of the manifest: an epoch that is run again joins the same keys. Where rows have become few, the share grows in two
steps: rows of more keys are stored, and these keys are joined once all their earlier rows, which were not, have expired.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from headrace.dataclass import dataclass
from headrace.observation import OperatorObservation
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.plan import derived_streams, union_streams
from headrace.store.logs.manifest import Manifest
from headrace.time import FOREVER, Instant

KEY_SAMPLES: Final = "key samples"
"""In a manifest's facts: by join that leaves keys out, the fields of its `KeySample`."""
_ROOM: Final = 0.9
"""The part of the limit that rows of the remaining keys are to take, so that the next epoch rarely passes it again."""
_FEW: Final = 0.25
"""The part of the limit up to which rows are so few that twice as many keys fit."""
_Z: Final = 1.96


@dataclass(frozen=True, slots=True)
class Reach:
    """After an epoch: no stored row that came in it or before can be joined from `ended` on, and `punctuation` has been reached."""

    ended: Instant
    punctuation: Instant


@dataclass(frozen=True, slots=True)
class KeySample:
    """A join joins a `share` of the keys, and stores rows of a share that is as great, or greater while it waits for the
    punctuation `complete_at`; `epoch` is that of the last change. `missing` combinations are estimated to have been left out so far, with a
    standard error of at most `deviation`.
    """

    share: float = 1.0
    stored: float = 1.0
    complete_at: Instant = FOREVER
    epoch: int = 0
    missing: float = 0.0
    deviation: float = 0.0

    @property
    def error(self) -> float:
        """Half the width of a 95 % interval around `missing`, or more."""
        return _Z * self.deviation

    @property
    def leaves_out(self) -> bool:
        """Whether it leaves keys out now, or has before."""
        return self.share < 1 or self.missing > 0

    def then(self, seen: OperatorObservation, most_rows: int, reach: Reach, epoch: int) -> KeySample:
        """After an epoch. Standard errors of epochs are added, not their squares: these are of the same keys."""
        now = replace(
            self, missing=self.missing + seen.missing, deviation=self.deviation + math.sqrt(seen.variance)
        )
        if seen.joinable > most_rows:
            stored = self.stored * _ROOM * most_rows / seen.joinable
            return replace(now, share=min(self.share, stored), stored=stored, epoch=epoch)
        if self.stored > self.share:
            complete = reach.punctuation > self.complete_at
            return replace(now, share=self.stored, epoch=epoch) if complete else now
        if self.share < 1 and seen.joinable <= _FEW * most_rows and reach.ended < FOREVER:
            return replace(now, stored=min(1.0, 2 * self.share), complete_at=reach.ended)
        return now

    @property
    def sentence(self) -> str:
        """What is missing, with the error."""
        percent = f"{100 * self.share:.1f}".rstrip("0").rstrip(".")
        return (
            f"since epoch {self.epoch} {percent} % of the keys are joined (maxJoinRows), and about {self.missing:,.0f} ± "
            f"{self.error:,.0f} results of others are missing"
        )


def samples_by_query(manifest: Manifest) -> dict[str, KeySample]:
    """The samples by the operator of the query whose join it is."""
    return {derived_streams.owner_of(name): sample for name, sample in key_samples(manifest).items()}


def key_samples(manifest: Manifest) -> dict[str, KeySample]:
    """The joins that leave keys out, or have done so, as decided after the last epoch."""
    return {name: KeySample(*fields) for name, fields in manifest.facts.get(KEY_SAMPLES, {}).items()}


def key_shares(manifest: Manifest) -> dict[str, tuple[float, float]]:
    """By join, the shares of keys that are joined, and of which rows are stored."""
    return {
        name: (sample.share, sample.stored)
        for name, sample in key_samples(manifest).items()
        if sample.share < 1
    }


def with_key_samples(after: Manifest, plan: EpochPlan, seen: Mapping[str, OperatorObservation]) -> Manifest:
    """The manifest with the decision for the next epoch; `seen` are joins that were visited, others keep theirs."""
    before = key_samples(after)
    samples = {name: sample for name, sample in before.items() if name in plan.operators}
    for name, observation in seen.items():
        most_rows = plan.operators[name].most_rows if name in plan.operators else None
        if most_rows is not None:
            reach = _reach(name, plan, after)
            sample = samples.get(name, KeySample()).then(observation, most_rows, reach, after.epoch)
            samples |= {name: sample} if sample.leaves_out else {}
    if samples == before:
        return after
    facts = {name: value for name, value in after.facts.items() if name != KEY_SAMPLES}
    fields = {
        name: [
            sample.share,
            sample.stored,
            sample.complete_at,
            sample.epoch,
            sample.missing,
            sample.deviation,
        ]
        for name, sample in samples.items()
    }
    return replace(after, facts={**facts, KEY_SAMPLES: fields} if fields else facts)


def _reach(name: str, plan: EpochPlan, after: Manifest) -> Reach:
    """How far the inputs of a join have come, and how long their rows may still be joined."""
    operator = plan.operators[name]
    inputs = [
        after.stream(union_input.stream)
        for union_input in union_streams.inputs_of(plan.streams[operator.stream])
    ]
    longest, greatest = operator.longest_stored, max(stream.greatest for stream in inputs)
    ended = FOREVER if longest is None else greatest + longest
    return Reach(ended, min(stream.punctuation for stream in inputs))
