"""The blocks of a stream's archive runs, and the number of each row by which its block is drawn: its position, or a hash of
the column that the option `blocksBy` names.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from headrace.archive.blocks import Blocks, seed_for
from headrace.catalog.definitions import StreamDefinition
from headrace.operators.base.group_codes import Ints, flat, hashes


def blocks_of_runs(stream: StreamDefinition) -> Blocks | None:
    """The blocks of the stream's runs; None where a run is in one piece."""
    if stream.blocks == 1:
        return None
    return Blocks(seed_for(stream.name, stream.blocks_by), stream.blocks)


def draws_of(stream: StreamDefinition, column: Callable[[str], pa.Array], position: Ints) -> Ints:
    """The number of each row: rows with equal ones are in the same block. `column` returns one of the stream's columns."""
    return position if stream.blocks_by is None else hashes(flat(column(stream.blocks_by)))
