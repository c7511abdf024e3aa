"""Snapshots of synopses as bytes, and their size in memory. A snapshot is numbers only: no code is stored.

A snapshot is a line of JSON that describes the arrays, then the arrays in order. The same synopsis gives the same bytes, and a
restored one continues unchanged. Sketches in panes (`sketch_kind`) are strings of bytes already.
"""

from __future__ import annotations

import io
import json
from collections import deque
from dataclasses import fields, is_dataclass
from typing import Any, Final

import numpy as np

from benchmarks.baselines.correlated.correlated import AboveMean, NearMinimum
from benchmarks.baselines.correlated.focused_histograms import FocusedHistograms, Strategy
from benchmarks.baselines.correlated.sliding_correlated import SlidingAboveMean, SlidingNearMinimum
from benchmarks.baselines.histograms.batch_counting import Counting
from benchmarks.baselines.histograms.distinct_window import DistinctWindow
from benchmarks.baselines.histograms.general_histogram import GeneralHistograms
from benchmarks.baselines.histograms.norms import PowerOfNorm, PowerOfSketchedNorm
from benchmarks.baselines.histograms.windowed_tables import WindowedTable
from benchmarks.baselines.rows.pane_minima import PaneMinima
from benchmarks.baselines.rows.recent_rows import RecentRows
from benchmarks.baselines.rows.samples import KeySample, Reservoir
from benchmarks.baselines.rows.sliding_extremes import Extremes
from headrace.synopses.histograms.canonical_form import Form
from headrace.synopses.histograms.exponential_histogram import Histograms
from headrace.synopses.sketches.rank_summary import Ranks
from headrace.synopses.sketches.stable_sketch import StableSketch

SYNOPSES: Final = {
    kind.__name__: kind
    for kind in (
        *(AboveMean, Counting, DistinctWindow, Extremes, FocusedHistograms, Form, GeneralHistograms),
        *(Histograms, KeySample, NearMinimum, PaneMinima, PowerOfNorm, PowerOfSketchedNorm, Ranks),
        *(RecentRows, Reservoir, SlidingAboveMean, SlidingNearMinimum, StableSketch, Strategy, WindowedTable),
    )
}
"""The classes of snapshots, by name."""

_SEQUENCES: Final = {"tuple": tuple, "list": list, "deque": deque}


def snapshot(synopsis: Any) -> bytes:
    """The synopsis as bytes."""
    arrays: list[np.ndarray] = []
    head = json.dumps(_encoded(synopsis, arrays)).encode()
    out = io.BytesIO()
    out.write(len(head).to_bytes(8, "little") + head)
    for array in arrays:
        np.save(out, array, allow_pickle=False)
    return out.getvalue()


def restore(stored: bytes) -> Any:
    """The synopsis of these bytes."""
    end = 8 + int.from_bytes(stored[:8], "little")
    rest, arrays = io.BytesIO(stored[end:]), []
    while rest.tell() < len(stored) - end:
        arrays.append(np.load(rest, allow_pickle=False))
    return _made(json.loads(stored[8:end]), arrays)


def held_bytes(synopsis: Any) -> int:
    """Bytes of all its numbers, in memory."""
    if isinstance(synopsis, np.ndarray):
        return synopsis.nbytes
    if is_dataclass(synopsis):
        return sum(held_bytes(getattr(synopsis, field.name)) for field in fields(synopsis))
    if isinstance(synopsis, tuple | list | deque):
        return sum(map(held_bytes, synopsis))
    return 8 * (synopsis is not None and not isinstance(synopsis, str))


def _encoded(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    name = type(value).__name__
    if name in _SEQUENCES:
        return {name: [_encoded(part, arrays) for part in value]}
    if SYNOPSES.get(name) is not type(value):
        raise TypeError(f"{type(value)} is not among the synopses that can be put away")
    return {"of": name, "parts": {f.name: _encoded(getattr(value, f.name), arrays) for f in fields(value)}}


def _made(encoded: Any, arrays: list[np.ndarray]) -> Any:
    if not isinstance(encoded, dict):
        return encoded
    if "array" in encoded:
        return arrays[encoded["array"]]
    if "of" in encoded:
        parts = {name: _made(part, arrays) for name, part in encoded["parts"].items()}
        return SYNOPSES[encoded["of"]](**parts)
    ((name, parts),) = encoded.items()
    return _SEQUENCES[name](_made(part, arrays) for part in parts)
