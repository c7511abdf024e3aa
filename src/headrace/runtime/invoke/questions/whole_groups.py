"""Groups of which an archive that was reduced by counts has every row: their values have no error, although other rows were dropped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.algebra.expressions.expression import Column, Named
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import flat, group
from headrace.runtime.home.home import Home
from headrace.runtime.invoke.questions.clauses import Side
from headrace.runtime.reduction.segment_writer import read_counts
from headrace.runtime.reduction.segments import Copy


@dataclass(frozen=True, slots=True)
class WholeGroups:
    """All groups by some columns, but those of `reduced`, of which in some interval rows were dropped; None where none was counted."""

    columns: tuple[str, ...]
    reduced: pa.Table | None

    @staticmethod
    def of(home: Home, side: Side, copy: Copy | None) -> WholeGroups | None:
        """Those of a copy of a stream's archive; None where rows are dropped by other rules too."""
        stream, name = side.stream, side.scan.reducer
        reductions = [one.reduction for one in stream.reducers if one.name.lower() == name]
        reduction = reductions[0] if name and reductions else stream.reduce
        if copy is None or reduction is None or reduction.counted is None:
            return None
        if not copy.by_counts or copy.reduction != str(reduction) or not reduction.counted.columns:
            return None
        reduced = read_counts(home, reduction.counted, copy.counts).reduced if copy.counts else None
        prefix = side.scan.alias
        return WholeGroups(tuple(f"{prefix}.{column}" for column in reduction.counted.columns), reduced)

    def are(self, keys: Sequence[Named], values: Sequence[pa.Array], count: int) -> npt.NDArray[np.bool_]:
        """Which groups by some keys are whole: by all the columns, with values that are not among the reduced."""
        places = {
            key.expression.name: number
            for number, key in enumerate(keys)
            if isinstance(key.expression, Column)
        }
        if not set(self.columns) <= places.keys():
            return np.zeros(count, np.bool_)
        if self.reduced is None:
            return np.ones(count, np.bool_)
        chosen = [flat(values[places[column]]) for column in self.columns]
        known = [flat(self.reduced.column(number)).cast(column.type) for number, column in enumerate(chosen)]
        both = [pa.concat_arrays([one, other]) for one, other in zip(known, chosen, strict=True)]
        rows = self.reduced.num_rows
        codes = group(both, rows + count).dense().codes
        whole: npt.NDArray[np.bool_] = ~np.isin(codes[rows:], codes[:rows])
        return whole
