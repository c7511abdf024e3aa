"""Group punctuation of an operator: which of its groups advance beyond the punctuation of its stream, by the stream's
promises for single groups or patterns, and up to which instant they have emitted after an epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.expressions.punctuation_patterns import rolled_up
from headrace.catalog.definitions import Progressing, StreamDefinition
from headrace.operators.base.group_codes import Ints
from headrace.operators.base.operator import Operator
from headrace.operators.time_windows.group_punctuation import BoundsOf, GroupAdvance
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.key_text import named
from headrace.runtime.plan import derived_streams
from headrace.runtime.progress.committed_progress import progress_of
from headrace.runtime.progress.pattern_bounds import bounds_of
from headrace.runtime.progress.plan_index import index_of
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, Instant


def group_punctuation_columns(operator: Operator, rule: Progressing) -> tuple[str, ...]:
    """The columns whose groups may advance beyond the stream; none where the operator has to wait for its stream.

    A promise for single values of some columns needs all of them as keys; of patterns each needs those that it tests.
    """
    columns = operator.group_columns(rule.groups) if rule.groups else ()
    return columns if rule.patterns or columns == rule.groups else ()


def bounds_by(rule: Progressing) -> BoundsOf:
    """The function that computes the punctuation of each row's group from the stream's promises."""
    return bounds_of if rule.patterns else partial(_by_name, rule.groups)


def _by_name(
    groups: tuple[str, ...], columns: Mapping[str, pa.Array], _rows: int, promises: Mapping[str, Instant]
) -> Ints:
    """Promises for single values, by their names."""
    names = named([columns[name] for name in groups])
    indices = pc.fill_null(pc.index_in(names, pa.array(list(promises), pa.string())), -1).to_numpy()
    values: Ints = np.array([*promises.values(), BEGINNING], np.int64)
    return np.asarray(values[indices])


def group_advance(
    operator: Operator,
    rule: Progressing,
    before: Mapping[str, Instant],
    promised: Mapping[str, Instant],
) -> GroupAdvance | None:
    """The operator's advance by group; None where no group is beyond the stream or may be.

    `before` has the instants up to which it has emitted, `promised` the stream's promises up to which it may emit.
    """
    now = {**before}
    for name, at in promised.items():
        now[name] = max(at, before.get(name, at))
    columns = group_punctuation_columns(operator, rule) if now else ()
    return GroupAdvance(columns, before, now, bounds_by(rule)) if columns else None


def groups_after(
    operator: Operator,
    rule: Progressing,
    before: Mapping[str, Instant],
    emitted_to: Instant,
    promised: Mapping[str, Instant],
) -> dict[str, Instant]:
    """The instants up to which groups of an operator beyond `emitted_to` have emitted, after an epoch with these promises."""
    groups = {**before, **(promised if group_punctuation_columns(operator, rule) else {})}
    groups = {group: at for group, at in groups.items() if at > emitted_to}
    return rolled_up(groups) if rule.patterns else groups


def promised_for(stream: StreamDefinition, manifest: Manifest) -> Mapping[str, Instant]:
    """The promises for groups of a stream's rows."""
    if derived_streams.pairs_in(stream) is None:
        return manifest.stream(stream.name).groups
    return derived_streams.promises(stream, lambda name: manifest.stream(name).punctuation)


def has_unheard_promises(operators: Iterable[str], plan: EpochPlan, manifest: Manifest) -> bool:
    """Whether promises for groups were made before one of these operators had read the rows: a backfill does not emit by them."""
    promised = {
        name: groups
        for name, stream in ((source.name, source) for source in index_of(plan).sources)
        if stream.progress.groups and (groups := progress_of(manifest.stream(name)).groups)
    }
    if not promised:
        return False
    for name in operators:
        operator, progress = plan.operators[name], manifest.operator(name)
        if operator.stream in promised:
            rule, before = plan.streams[operator.stream].progress, progress.group_punctuations
            if groups_after(operator, rule, before, progress.emitted_to, promised[operator.stream]) != before:
                return True
    return False
