"""How far may the groups of an operator go ahead of its stream, by the stream's promises for single groups?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.catalog.definitions import Progressing
from headrace.operators.base.group_codes import Ints
from headrace.operators.base.operator import Operator
from headrace.operators.time_windows.group_punctuation import BoundsOf, GroupAdvance
from headrace.runtime.messages.key_text import named
from headrace.runtime.progress.pattern_bounds import bounds_of
from headrace.time import BEGINNING, Instant


def group_punctuation_columns(operator: Operator, rule: Progressing) -> tuple[str, ...]:
    """The columns by which the operator's groups may go ahead; none where it has to wait for its stream.

    A promise for single values of some columns needs all of them as keys; of patterns each needs those that it tests.
    """
    kept = operator.group_columns(rule.groups) if rule.groups else ()
    return kept if rule.patterns or kept == rule.groups else ()


def bounds_by(rule: Progressing) -> BoundsOf:
    """How the stream's promises say how far a row's group is."""
    return bounds_of if rule.patterns else partial(_by_name, rule.groups)


def _by_name(
    groups: tuple[str, ...], columns: Mapping[str, pa.Array], _rows: int, promises: Mapping[str, Instant]
) -> Ints:
    """Promises for single values, by their names."""
    names = named([columns[name] for name in groups])
    place = pc.fill_null(pc.index_in(names, pa.array(list(promises), pa.string())), -1).to_numpy()
    values: Ints = np.array([*promises.values(), BEGINNING], np.int64)
    return np.asarray(values[place])


def group_advance(
    operator: Operator,
    rule: Progressing,
    before: Mapping[str, Instant],
    promised: Mapping[str, Instant],
) -> GroupAdvance | None:
    """The operator's turn group by group; None where no group of it is ahead or may be.

    `before` is what it has answered to, `promised` what its stream promises now and it may answer.
    """
    now = {**before}
    for name, at in promised.items():
        now[name] = max(at, before.get(name, at))
    columns = group_punctuation_columns(operator, rule) if now else ()
    return GroupAdvance(columns, before, now, bounds_by(rule)) if columns else None
