"""Who takes part, in which variant, at which sizes, and in which format."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

FARTHEST = 10
"""No contender's time is extrapolated over more than so many times the rows it was measured at."""

_PEERS = "benchmarks.peers"
_ALL = (1.0,)


@dataclass(frozen=True, slots=True)
class Contender:
    """One system in one variant.

    `parts` names, by task, the parts of the rows that a slow one is measured at, least first: its fixed cost and its cost per row follow
    from them, and from both its time for all rows. Others have all rows. `memory` is what it is allowed, in words.
    A `yardstick` is measured and shown, but no threshold is about it. `environment` is set where it starts.
    """

    name: str
    module: str
    form: str
    memory: str
    peer: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    parts: dict[str, tuple[float, ...]] = field(default_factory=dict)
    yardstick: bool = False
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for task, parts in self.parts.items():
            check_parts(f"{self.name}, {task}", parts)

    def sizes(self, task: str, wanted: int) -> tuple[int, ...]:
        """The numbers of rows it is measured at, where the others have `wanted`."""
        return sizes(self.parts.get(task, _ALL), wanted)


def check_parts(who: str, parts: tuple[float, ...]) -> None:
    """Raises `ValueError` when a time for all rows would be a guess."""
    if max(parts) * FARTHEST < 1:
        raise ValueError(
            f"{who}: expected at least 1/{FARTHEST} of the rows, found {max(parts):g} of them: too far to extrapolate."
        )
    if parts != _ALL and len(set(parts)) < 2:
        raise ValueError(
            f"{who}: expected all rows, or two sizes that separate a fixed cost from a cost per row, found {parts}."
        )


def sizes(parts: tuple[float, ...], wanted: int) -> tuple[int, ...]:
    """Parts of `wanted` rows as numbers of rows."""
    return tuple(max(1, round(part * wanted)) for part in parts)


HEADRACE = Contender(
    "headrace",
    "benchmarks.headrace_runner",
    "parquet",
    "JVM heap 2 GB, Arrow's pool of memory `system` in the driver too",
    options={"archive": "none"},
    environment={"ARROW_DEFAULT_MEMORY_POOL": "system"},
)
ARCHIVED = replace(HEADRACE, name="headrace, archive on", options={"archive": "on"})
TEN_WINDOWS = replace(HEADRACE, name="headrace, ten windows", options={"archive": "none", "windows": "ten"})
BYTEWAX = Contender(
    "bytewax",
    f"{_PEERS}.bytewax.runner",
    "arrow",
    "no limit",
    "bytewax",
    parts={"sliding": (0.025, 0.05, 0.1)},
)
BYTEWAX_COMBINED = replace(
    BYTEWAX,
    name="bytewax, combined by hand",
    options={"variant": "combined"},
    parts={"sliding": (0.05, 0.1)},
    yardstick=True,
)
FLINK = Contender("flink", f"{_PEERS}.flink.runner", "parquet", "JVM heap 4 GB", "flink")
SPARK = Contender("spark streaming", f"{_PEERS}.spark.runner", "parquet", "JVM heap 4 GB", "spark")
SPARK_ROCKSDB = replace(SPARK, name="spark streaming, RocksDB", options={"state": "rocksdb"})
SPARK_PANES = replace(SPARK, name="spark streaming, panes", options={"plan": "panes"})
SPARK_PANES_ROCKSDB = replace(
    SPARK, name="spark streaming, panes, RocksDB", options={"plan": "panes", "state": "rocksdb"}
)
SPARK_BATCH = replace(SPARK, name="spark batch", options={"engine": "batch", "plan": "panes"}, yardstick=True)
DUCKDB = Contender(
    "duckdb, batch",
    f"{_PEERS}.duckdb.runner",
    "parquet",
    "its own limit, 80 % of the machine's",
    "duckdb",
    yardstick=True,
)
POLARS = Contender(
    "polars, batch", f"{_PEERS}.polars.runner", "parquet", "no limit", "polars", yardstick=True
)
