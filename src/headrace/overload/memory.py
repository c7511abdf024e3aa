"""The memory budget, a pure function from epoch to epoch: how many bytes all queries, and those of one owner, may use, and what
is given up when they would use more: caches of joins and of sums, large epochs, rows of queries that allow loss and the accuracy of synopses of
those that allow a larger error, whole queries.

The first three begin above a part of the budget (`SOFT`), since they take time; queries are suspended at once, so that those that run
use no more than the budget after every epoch. What was given up last returns first, after a calm, while there is room. Rows and accuracy are
given up as rows are in an overload, by the utility lost for a byte saved; queries by the bytes for the utility of their answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, log2
from typing import Any, Final

from headrace.algebra.quality_of_service import QualityOfService
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.overload.road_map import Sheddable, Step, shed, undo

SOFT: Final = 0.8
"""The part of a budget from which on less is cached, taken at a time, and sampled."""
RETURN: Final = 0.9
"""The part of that which may be used after something has returned."""
OF_ROWS: Final = 1 / 8
"""The part of the budget that the rows of an epoch may take while it is short."""
SETTLES: Final = 4
"""Epochs after which a change has shown what it frees: state shrinks as windows close."""
CALM: Final = 8
"""Epochs in a row with room before something returns."""
FOLLOWS: Final = 0.25
"""Cells that a row adds to the state, from which on fewer rows are less state: aggregates of few groups stay as they are."""
FADES: Final = 0.8
"""What an earlier epoch still counts after the next one, where the bytes of a row are estimated."""
OF_BUFFERS: Final = 1 / 16
"""The part of the budget that the buffers of archive writers may take, and so may the sums that questions cache."""
KINDS: Final = ("state", "panes", "synopses", "caches", "rows", "archive", "sums")
_UNITS: Final = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def bytes_of(size: int | str) -> int:
    """A size in bytes, or with a unit of thousands.

    >>> bytes_of("1.5 GB")
    1500000000

    Raises `UserError` for anything else, and below one byte.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?B)?\s*", str(size), re.IGNORECASE)
    value = 0 if found is None else int(float(found[1]) * _UNITS[(found[2] or "").upper()])
    if value < 1:
        raise UserError(
            f"'{size}' is no size of memory", remedy="Write bytes, or for example '500 MB' or '2 GB'."
        )
    return value


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes that all queries may use together, and those of each owner; None: without limit."""

    hub: int | None = None
    owner: int | None = None

    def of(self, scope: str) -> int | None:
        """The limit of an owner, or of all ("")."""
        return self.owner if scope else self.hub


@dataclass(frozen=True, slots=True)
class Claim:
    """What one operator uses: its query and the owner of that, bytes by kind, and what may be done about them.

    `follows` is the part of its bytes that follows the rows it is given. `utility` is that of its answers now. `synopses` are the bytes
    of those in one cell from which on they would be smaller, with their error doubled 0, 1, … times; `cell` is what a cell takes.
    """

    operator: str
    query: str
    owner: str
    kind: str
    bytes: int
    utility: float = 1.0
    quality: QualityOfService | None = None
    follows: float = 0.0
    frequencies: tuple[float, ...] = ()
    synopses: tuple[float, ...] = ()
    cell: float = 0.0

    def sizes(self, doubled: int) -> tuple[float, ...]:
        """Its bytes by how often the error of its synopses is doubled, from those of now.

        Coarser ones are smaller where cells are larger than they are: synopses of few values stay as they are, and exact.
        """
        now = self.synopses[doubled]
        filled = max(1.0, min(now, self.cell))
        finer = (self.bytes * size / now for size in self.synopses[:doubled])
        coarser = (self.bytes * min(1.0, size / filled) for size in self.synopses[doubled + 1 :])
        return (*finer, float(self.bytes), *coarser)

    @property
    def may_lose_rows(self) -> bool:
        """Whether a sample of its rows would be smaller."""
        quality = self.quality
        if quality is None or quality.loss is None or quality.sketches is not None:
            return False
        return self.follows >= FOLLOWS


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """One epoch: the claims of the queries that run, the bytes of caches of joins, and the rows taken with their bytes; the bytes that
    archive writers have buffered of these rows at most, and those of the sums that questions cache.

    `suspended` are the queries that the budget has suspended and that have not been resumed.
    """

    epoch: int
    claims: Sequence[Claim] = ()
    caches: int = 0
    rows: int = 0
    row_bytes: int = 0
    suspended: frozenset[str] = frozenset()
    archive: int = 0
    sums: int = 0

    @property
    def cached(self) -> int:
        """What may be computed again."""
        return self.caches + self.sums


@dataclass(frozen=True, slots=True)
class Suspension:
    """A query that was suspended: its bytes, in which epoch, whose budget ("" that of all) it exceeded."""

    query: str
    owner: str
    bytes: int
    epoch: int
    scope: str

    def as_json(self) -> list[Any]:
        """JSON values; the constructor takes them back."""
        return [self.query, self.owner, self.bytes, self.epoch, self.scope]


@dataclass(frozen=True, slots=True)
class MemoryControl:
    """What is given up, in the order in which it was; JSON in the manifest.

    `resuming` are queries that are to run again. `calm` counts epochs with room, `changed` is the epoch of the last change.
    `rows` were taken, and took or `added` so many bytes, of which those of earlier epochs count less; `state` were the bytes of state.
    """

    without_caches: bool = False
    epoch_rows: int | None = None
    steps: tuple[Step, ...] = ()
    suspended: tuple[Suspension, ...] = ()
    resuming: tuple[str, ...] = ()
    calm: int = 0
    changed: int = 0
    rows: float = 0.0
    added: float = 0.0
    state: int = 0

    @property
    def row_bytes(self) -> float:
        """Bytes of a row, and of what it adds to the state."""
        return self.added / self.rows if self.rows else 0.0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is given up."""
        return not (self.without_caches or self.epoch_rows or self.steps or self.suspended or self.resuming)

    def doubled(self, claims: Iterable[Claim]) -> dict[str, int]:
        """By operator, how often the error of its synopses is doubled, of those where it is."""
        accuracy = {step.query: step.after for step in self.steps}
        return {
            claim.operator: round(-log2(accuracy[claim.operator]))
            for claim in claims
            if claim.synopses and accuracy.get(claim.operator, 1.0) < 1
        }

    def shares(self, claims: Iterable[Claim]) -> dict[str, tuple[float, ...]]:
        """By operator, the shares of its rows that it sees, of those that do not see all."""
        changed = {(step.query, step.interval): step.after for step in self.steps}
        shares = {
            claim.operator: tuple(
                changed.get((claim.operator, interval), 1.0) for interval in range(claim.quality.intervals)
            )
            for claim in claims
            if claim.quality is not None and not claim.synopses
        }
        return {operator: seen for operator, seen in shares.items() if min(seen) < 1}

    def after(self, seen: MemoryUse, limits: Limits) -> MemoryControl:
        """What is given up in the next epoch."""
        control = self.still_known(seen)
        less = control.tightened(seen, limits)
        if less is not control:
            return replace(less, calm=0, changed=seen.epoch)
        if control.is_idle:
            return control
        more = control.returned(seen, limits)
        if more is None:
            return replace(control, calm=0)
        if control.calm + 1 < CALM and limits != Limits():
            return replace(control, calm=control.calm + 1)
        return replace(more, calm=0, changed=seen.epoch)

    def still_known(self, seen: MemoryUse) -> MemoryControl:
        """Without what statements have changed: queries that were dropped or resumed, and those that run again."""
        operators = {claim.operator for claim in seen.claims}
        running = {claim.query for claim in seen.claims}
        state = sum(claim.bytes for claim in seen.claims)
        added = seen.row_bytes + seen.archive + max(0, state - self.state)
        return replace(
            self,
            steps=tuple(step for step in self.steps if step.query in operators),
            suspended=tuple(one for one in self.suspended if one.query in seen.suspended),
            resuming=tuple(name for name in self.resuming if name in seen.suspended and name not in running),
            rows=self.rows * FADES + seen.rows,
            added=self.added * FADES + added,
            state=state,
        )

    # -- less ----------------------------------------------------------------------------------------------------------

    def tightened(self, seen: MemoryUse, limits: Limits) -> MemoryControl:
        """With less, where a budget is short; itself where none is."""
        control = self
        for scope in _scopes(seen, limits):
            limit = limits.of(scope)
            if limit is not None:
                control = control.spared(seen, scope, limit)
                control = control.suspending(seen, scope, limit)
        return control

    def used(self, seen: MemoryUse, scope: str) -> int:
        """Bytes that count to a budget after what is given up: caches and rows to that of all."""
        off = {one.query for one in self.suspended}
        used = sum(claim.bytes for claim in _of(seen, scope) if claim.query not in off)
        if scope:
            return used
        rows = self.of_rows(seen, seen.row_bytes) + self.of_rows(seen, seen.archive)
        return used + rows + (0 if self.without_caches else seen.cached)

    def of_rows(self, seen: MemoryUse, size: int) -> int:
        """Of bytes that follow the rows of an epoch, those of as many as in the last one, up to the most that it may take."""
        if self.epoch_rows is None or seen.rows <= self.epoch_rows:
            return size
        return size * self.epoch_rows // seen.rows

    def spared(self, seen: MemoryUse, scope: str, limit: int) -> MemoryControl:
        """Without caches, with smaller epochs, samples and coarser synopses, above a part of the budget."""
        control, soft = self, SOFT * limit
        if control.used(seen, scope) <= soft:
            return control
        if not scope:
            if not control.without_caches and seen.cached:
                control = replace(control, without_caches=True)
            most = max(1, int(OF_ROWS * limit / control.row_bytes)) if control.row_bytes else None
            is_less = most is not None and (control.epoch_rows is None or 2 * most < control.epoch_rows)
            if is_less and control.used(seen, scope) > soft:
                control = replace(control, epoch_rows=most)
        excess = control.used(seen, scope) - soft
        if excess <= 0 or (self.steps and seen.epoch < self.changed + SETTLES):
            return control
        steps = shed(control.sheddable(seen, scope), excess)
        return replace(control, steps=(*control.steps, *steps)) if steps else control

    def sheddable(self, seen: MemoryUse, scope: str) -> dict[str, Sheddable]:
        """The operators that may see fewer rows: their bytes if they saw all; and those whose synopses may get coarser."""
        off, shares, doubled = (
            {one.query for one in self.suspended},
            self.shares(seen.claims),
            self.doubled(seen.claims),
        )
        found = {}
        for claim in _of(seen, scope):
            if claim.synopses and claim.quality is not None and claim.query not in off:
                now = doubled.get(claim.operator, 0)
                sizes = claim.sizes(now)
                found[claim.operator] = Sheddable(claim.quality, sizes[0], shares=(2.0**-now,), sizes=sizes)
            elif claim.may_lose_rows and claim.quality is not None and claim.query not in off:
                intervals = claim.quality.intervals
                known = (
                    claim.frequencies if len(claim.frequencies) == intervals else (1 / intervals,) * intervals
                )
                seeing = shares.get(claim.operator, (1.0,) * intervals)
                seen_part = sum(part * share for part, share in zip(known, seeing, strict=True))
                whole = claim.bytes * min(1.0, claim.follows) / max(seen_part, 1e-9)
                found[claim.operator] = Sheddable(claim.quality, whole, known, seeing)
        return found

    def suspending(self, seen: MemoryUse, scope: str, limit: int) -> MemoryControl:
        """Without the queries whose bytes are worth least, those that allow loss or a larger error last, until the rest is within the budget."""
        control = self
        while control.used(seen, scope) > limit:
            off = {one.query for one in control.suspended}
            queries = _queries(claim for claim in _of(seen, scope) if claim.bytes and claim.query not in off)
            costliest = max(queries, key=lambda query: query.order, default=None)
            if costliest is None:
                break
            suspension = Suspension(costliest.query, costliest.owner, costliest.bytes, seen.epoch, scope)
            control = replace(
                control,
                suspended=(*control.suspended, suspension),
                resuming=tuple(name for name in control.resuming if name != costliest.query),
            )
        return control

    # -- more ----------------------------------------------------------------------------------------------------------

    def returned(self, seen: MemoryUse, limits: Limits) -> MemoryControl | None:
        """With what was given up last; None where there is no room for it."""
        if self.suspended:
            last = self.suspended[-1]
            fits = all(
                self.room(seen, limits, scope) >= last.bytes
                for scope in ("", last.owner)[: 1 + bool(last.owner)]
            )
            without = replace(self, suspended=self.suspended[:-1], resuming=(*self.resuming, last.query))
            return without if fits else None
        if self.resuming:
            return None
        if self.steps:
            spare = min(self.room(seen, limits, scope) for scope in ("", *_owners_of(seen, self.steps)))
            steps, _ = undo(self.steps, self.sheddable(seen, ""), spare)
            return None if tuple(steps) == self.steps else replace(self, steps=tuple(steps))
        if self.epoch_rows is not None:
            most = None if self.room(seen, limits, "") > 0 else self.epoch_rows
            return None if most is not None else replace(self, epoch_rows=None)
        return replace(self, without_caches=False) if self.room(seen, limits, "") > seen.cached else None

    def room(self, seen: MemoryUse, limits: Limits, scope: str) -> float:
        """Bytes that may return within a budget."""
        limit = limits.of(scope)
        return inf if limit is None else SOFT * RETURN * limit - self.used(seen, scope)

    # -- as JSON -------------------------------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """JSON values, for the manifest."""
        value = {name: getattr(self, name) for name in MemoryControl.__slots__}
        value["steps"] = [step.as_json() for step in self.steps]
        value["suspended"] = [one.as_json() for one in self.suspended]
        value["resuming"] = list(self.resuming)
        return value

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> MemoryControl:
        """The inverse."""
        parts = {
            "steps": tuple(Step(*step) for step in value["steps"]),
            "suspended": tuple(Suspension(*one) for one in value["suspended"]),
            "resuming": tuple(value["resuming"]),
        }
        return MemoryControl(**{**value, **parts})


@dataclass(frozen=True, slots=True)
class _Query:
    """All claims of one query together."""

    query: str
    owner: str
    bytes: int
    worth: float
    allows_loss: bool

    @property
    def order(self) -> tuple[bool, float, str]:
        """The greatest is suspended first."""
        return not self.allows_loss, self.bytes / max(self.worth, 1e-9), self.query


def _queries(claims: Iterable[Claim]) -> list[_Query]:
    by_query: dict[str, list[Claim]] = {}
    for claim in claims:
        by_query.setdefault(claim.query, []).append(claim)
    return [
        _Query(
            query,
            of_query[0].owner,
            sum(claim.bytes for claim in of_query),
            min(claim.utility for claim in of_query),
            any(claim.quality is not None and claim.quality.has_own_state for claim in of_query),
        )
        for query, of_query in by_query.items()
    ]


def _scopes(seen: MemoryUse, limits: Limits) -> list[str]:
    """Owners first, in order, then all."""
    owners = sorted({claim.owner for claim in seen.claims if claim.owner}) if limits.owner is not None else []
    return [*owners, ""]


def _of(seen: MemoryUse, scope: str) -> list[Claim]:
    return [claim for claim in seen.claims if not scope or claim.owner == scope]


def _owners_of(seen: MemoryUse, steps: Sequence[Step]) -> list[str]:
    last = steps[-1].query
    return sorted({claim.owner for claim in seen.claims if claim.operator == last and claim.owner})
