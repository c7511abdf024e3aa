"""How are values with their counts shown in one column? As JSON, since a result has no nested types."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa


def as_json(cells: Sequence[Sequence[tuple[str, int]]]) -> pa.Array:
    """Values with counts as texts; NULL for none."""
    texts = [
        json.dumps([{"item": text, "count": number} for text, number in items], ensure_ascii=False)
        if items
        else None
        for items in cells
    ]
    return pa.array(texts, pa.string())
