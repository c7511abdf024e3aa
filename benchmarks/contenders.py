"""Who takes part, in which variant, over how many rows at most, and in which format."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from benchmarks.data import ROWS

_PEERS = "benchmarks.peers"


@dataclass(frozen=True, slots=True)
class Contender:
    """One system in one variant.

    `most_rows` bounds the rows of the slow ones, by task: rates are compared, and a run should end within minutes.
    A `yardstick` is measured and shown, but no threshold is about it. `environment` is set where it starts.
    """

    name: str
    module: str
    form: str
    peer: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    most_rows: dict[str, int] = field(default_factory=dict)
    yardstick: bool = False
    environment: dict[str, str] = field(default_factory=dict)

    def rows(self, task: str, wanted: int) -> int:
        return min(wanted, self.most_rows.get(task, ROWS))


_OURS = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""What comes and goes piece by piece finds the memory of the piece before, as in the pipeline's own workers."""

HEADRACE = Contender(
    "headrace", "benchmarks.headrace_runner", "parquet", options={"archive": "none"}, environment=_OURS
)
ARCHIVED = replace(HEADRACE, name="headrace, archive on", options={"archive": "on"})
TEN_WINDOWS = replace(HEADRACE, name="headrace, ten windows", options={"archive": "none", "windows": "ten"})
BYTEWAX = Contender(
    "bytewax",
    f"{_PEERS}.bytewax.runner",
    "arrow",
    "bytewax",
    most_rows={"tumbling": 4_000_000, "sliding": 250_000},
)
BYTEWAX_COMBINED = Contender(
    "bytewax, combined by hand",
    f"{_PEERS}.bytewax.runner",
    "arrow",
    "bytewax",
    {"variant": "combined"},
    most_rows={"sliding": 2_000_000},
    yardstick=True,
)
PYFLINK = Contender(
    "pyflink",
    f"{_PEERS}.pyflink.runner",
    "csv",
    "pyflink",
    most_rows={"tumbling": 8_000_000, "sliding": 8_000_000},
)
SPARK = Contender(
    "spark streaming", f"{_PEERS}.spark.runner", "parquet", "spark", most_rows={"sliding": 4_000_000}
)
SPARK_ROCKSDB = Contender(
    "spark streaming, RocksDB",
    f"{_PEERS}.spark.runner",
    "parquet",
    "spark",
    {"state": "rocksdb"},
    most_rows={"sliding": 4_000_000},
)
SPARK_BATCH = Contender(
    "spark batch",
    f"{_PEERS}.spark.runner",
    "parquet",
    "spark",
    {"engine": "batch"},
    most_rows={"sliding": 2_000_000},
    yardstick=True,
)
