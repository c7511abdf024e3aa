"""Preparation of a batch for matching: ranks of its values among the indexed constants, and the rows that only a
predicate itself can decide, with their results.

Boxes decide nearly all rows. The others are: residuals, evaluated once per distinct expression and only on rows that
pass the boxes of a query that has it; and exceptional rows, where an attribute failed or NULL meets a residual that may
fail: there the query's own predicate is evaluated, so that SQL's rules about errors hold without exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.boxes.box_index import Part
from headrace.operators.query_index.boxes.by_column import BLOCK_WORDS, LANES, Words, planned, tiles_of
from headrace.operators.query_index.boxes.cut_ranks import Keys, Ranks, cut_ranks
from headrace.operators.query_index.index import Compiled, Entry, QueryIndex, Side
from headrace.operators.scalar import Evaluation
from headrace.operators.scalar.values.datum import column, truth
from headrace.operators.scalar.values.row_errors import Errors


@dataclass(frozen=True, slots=True)
class Failed:
    """Rows of the batch on which a query failed, and why."""

    rows: Ints
    reasons: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Prepared:
    """A batch ready to be matched with one version of the index.

    `ranks[i]` are those of the attributes of `parts[i]`, which hold the queries that boxes decide; those of the parts `of_groups` have a
    rank for each (pane, group) instead of each row, as their attributes are group keys. `decided` holds for
    the slots of queries with a residual the bitmap of rows they select; `patches` for others the rows on which boxes do
    not decide, and the predicate's values there; `failed` the rows on which a query failed. `dead` slots have no query.
    """

    index: QueryIndex
    rows: int
    parts: list[Compiled] = field(default_factory=list)
    ranks: list[list[Ranks]] = field(default_factory=list)
    of_groups: set[int] = field(default_factory=set)
    decided: dict[int, Words] = field(default_factory=dict)
    patches: dict[int, tuple[Ints, np.ndarray]] = field(default_factory=dict)
    failed: dict[int, Failed] = field(default_factory=dict)
    dead: frozenset[int] = frozenset()

    def at(self, number: int) -> list[np.ndarray]:
        """The ranks of all rows for a part, or of all (pane, group)s, in place of tables."""
        return [ranks.of(slice(None)) for ranks in self.ranks[number]]


class _Batch:
    """The batch, with its attributes' values and failures, each attribute evaluated once."""

    def __init__(self, columns: Mapping[str, pa.Array], rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.evaluation = Evaluation(columns, rows)
        self.failures: dict[Expression, np.ndarray] = {}
        self.nulls: dict[Expression, np.ndarray] = {}
        self._keys: dict[Expression, Keys] = {}
        self._exceptional: dict[tuple[tuple[Expression, ...], bool], tuple[Ints, Evaluation]] = {}

    def ranks(self, part: Part) -> list[Ranks]:
        return [cut_ranks(attribute, self._keys_of(attribute.expression)) for attribute in part.attributes]

    def _keys_of(self, attribute: Expression) -> Keys:
        if attribute not in self._keys:
            result = self.evaluation.result(attribute)
            keys = self._keys[attribute] = Keys.of(column(result.value, self.rows))
            if result.errors is not None:
                self.failures[attribute] = result.errors.mask
            if keys.nulls is not None:
                self.nulls[attribute] = keys.nulls
        return self._keys[attribute]

    def restricted(self, rows: Ints) -> Evaluation:
        """Evaluation over some rows."""
        if len(rows) == self.rows:
            return self.evaluation
        picked = pa.array(rows)
        return Evaluation({name: values.take(picked) for name, values in self.columns.items()}, len(rows))

    def exceptional(self, entry: Entry) -> tuple[Ints, Evaluation] | None:
        """The exceptional rows of a query; shared by queries with the same affected attributes, of which NULLs count, or do not."""
        with_nulls = entry.form.residual_may_fail
        kinds = (self.failures, self.nulls) if with_nulls else (self.failures,)
        masks = {
            attribute: [kind[attribute] for kind in kinds if attribute in kind]
            for attribute in entry.form.attributes
        }
        affected = tuple(attribute for attribute, of_attribute in masks.items() if of_attribute)
        if not affected:
            return None
        key = affected, with_nulls
        if key not in self._exceptional:
            mask = np.logical_or.reduce([mask for of_attribute in masks.values() for mask in of_attribute])
            rows = np.flatnonzero(mask)
            self._exceptional[key] = rows, self.restricted(rows)
        return self._exceptional[key]


def prepared(
    index: QueryIndex,
    columns: Mapping[str, pa.Array],
    rows: int,
    groups: Callable[[Expression], pa.Array | None] | None = None,
) -> Prepared:
    """Find the ranks of all rows, and decide what boxes do not. Columns by internal name, `rows` long.

    `groups` gives the values of a group key by (pane, group), which decide the parts whose attributes are all keys.
    """
    result = Prepared(index, rows, dead=index.dead_slots())
    batch = _Batch(columns, rows)
    if rows:
        for side in index.sides:
            for compiled in side.plain:
                of_groups = None if groups is None else _ranks_of_groups(compiled.part, groups)
                if of_groups is not None:
                    result.of_groups.add(len(result.parts))
                result.ranks.append(batch.ranks(compiled.part) if of_groups is None else of_groups)
                result.parts.append(compiled)
            _decide_residuals(result, batch, side)
        _decide_exceptions(result, batch)
    return result


def _ranks_of_groups(part: Part, groups: Callable[[Expression], pa.Array | None]) -> list[Ranks] | None:
    """The ranks of all (pane, group)s; None where an attribute is no group key."""
    ranks = list[Ranks]()
    for attribute in part.attributes:
        values = groups(attribute.expression)
        if values is None:
            return None
        ranks.append(cut_ranks(attribute, Keys.of(values)))
    return ranks


def words_of(mask: np.ndarray) -> Words:
    """Truth values as a bitmap."""
    whole = np.zeros(-(-len(mask) // LANES) * 8, np.uint8)
    packed = np.packbits(mask, bitorder="little")
    whole[: len(packed)] = packed
    return whole.view(np.uint64)


def truths(words: Words, rows: int) -> np.ndarray:
    """A bitmap (or several, one a row) as truth values."""
    values: np.ndarray = np.unpackbits(words.view(np.uint8), axis=-1, count=rows, bitorder="little").view(
        bool
    )
    return values


def blocks(at: list[np.ndarray], rows: int) -> Iterator[tuple[int, int, list[np.ndarray], Words]]:
    """The rows cut into blocks: first and last row, ranks padded to whole words, and the mask of real rows."""
    for low in range(0, rows, BLOCK_WORDS * LANES):
        high = min(rows, low + BLOCK_WORDS * LANES)
        pad = -(high - low) % LANES
        here = [np.pad(ranks[low:high], (0, pad)) if pad else ranks[low:high] for ranks in at]
        yield low, high, here, words_of(np.ones(high - low, bool))


def _decide_residuals(decisions: Prepared, batch: _Batch, side: Side) -> None:
    if not side.with_residual:
        return
    by_slot = _box_matches(side.residual, batch)
    sharing: dict[Expression, list[Entry]] = {}
    no_rows = np.zeros(-(-batch.rows // LANES), np.uint64)
    for entry in side.with_residual:
        if entry.form.residual is not None and entry.slot not in decisions.dead:
            sharing.setdefault(entry.form.residual, []).append(entry)
    for residual, entries in sharing.items():
        selected = [by_slot.get(entry.slot, no_rows) for entry in entries]
        rows = np.flatnonzero(truths(np.bitwise_or.reduce(selected), batch.rows))
        result = batch.restricted(rows).result(residual)
        true, errors = truth(result.value, len(rows)), result.errors
        for entry, words in zip(entries, selected, strict=True):
            mask = truths(words, batch.rows)
            passing = mask[rows]
            if errors is not None and (errors.mask & passing).any():
                local = np.flatnonzero(errors.mask & passing)
                reasons = tuple(errors.reasons[row] for row in local.tolist())
                decisions.failed[entry.slot] = Failed(rows[local], reasons)
            decided = np.zeros(batch.rows, bool)
            decided[rows] = passing & true if errors is None else passing & true & ~errors.mask
            decisions.decided[entry.slot] = words_of(decided)


def _box_matches(part: Part, batch: _Batch) -> dict[int, Words]:
    at, plan = [ranks.of(slice(None)) for ranks in batch.ranks(part)], planned(part)
    words = np.empty((part.queries, -(-batch.rows // LANES)), np.uint64)
    for low, _, here, mask in blocks(at, batch.rows):
        for tile in tiles_of(plan, here, mask):
            words[tile.low : tile.high, low // LANES : low // LANES + len(mask)] = tile.words
    return dict(zip(part.slots.tolist(), words, strict=True))


def _decide_exceptions(decisions: Prepared, batch: _Batch) -> None:
    """Evaluate the predicate itself on exceptional rows, overriding boxes and residual."""
    for side in decisions.index.sides:
        for entry in side.entries if batch.failures else side.cautious:
            slot = entry.slot
            exceptional = None if slot in decisions.dead else batch.exceptional(entry)
            if exceptional is None:
                continue
            rows, evaluation = exceptional
            result = evaluation.result(entry.form.predicate)
            true = truth(result.value, len(rows))
            if result.errors is not None:
                true = true & ~result.errors.mask
            if slot in decisions.decided:
                mask = truths(decisions.decided[slot], batch.rows)
                mask[rows] = true
                decisions.decided[slot] = words_of(mask)
            else:
                decisions.patches[slot] = rows, true
            _refail(decisions, slot, rows, result.errors)


def _refail(result: Prepared, slot: int, rows: Ints, errors: Errors | None) -> None:
    before = result.failed.pop(slot, Failed(np.empty(0, np.int64), ()))
    keep = ~np.isin(before.rows, rows)
    reasons = dict(
        zip(before.rows[keep].tolist(), np.array(before.reasons, object)[keep].tolist(), strict=True)
    )
    if errors is not None:
        local = np.flatnonzero(errors.mask).tolist()
        reasons |= {int(rows[row]): errors.reasons[row] for row in local}
    if reasons:
        at = sorted(reasons)
        result.failed[slot] = Failed(np.array(at, np.int64), tuple(reasons[row] for row in at))
