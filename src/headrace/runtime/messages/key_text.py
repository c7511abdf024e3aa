"""Keys as text: the values of columns as one text for each row, by which a manifest names sources and groups."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.base.group_codes import flat


def named(columns: Sequence[pa.Array]) -> pa.Array:
    """One text for each row; equal for equal rows only.

    `2:ab` for a value, `-:` for NULL, concatenated: the length before each text makes it unambiguous.
    """
    parts: list[pa.Array] = []
    for column in columns:
        text = flat(column).cast(pa.string())
        parts += [pc.fill_null(pc.utf8_length(text).cast(pa.string()), "-"), pc.fill_null(text, "")]
    texts = [
        pc.binary_join_element_wise(size, text, ":")
        for size, text in zip(parts[::2], parts[1::2], strict=True)
    ]
    return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, "")
