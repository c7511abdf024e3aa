"""Flink SQL with standing queries that get ten rows at a time; `src/peers/Standing.java` does it, this starts it.

`python -m benchmarks.peers.flink.standing KIND QUERIES WARM_UP EPOCHS FOLDER` prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.peers.flink.runner import java

_WINDOWED = (
    "SELECT {key}{answer} AS n FROM TABLE({window}) WHERE x > {{i}} GROUP BY {key}window_start, window_end"
)
_SLIDING = "HOP(TABLE s, DESCRIPTOR(happened), INTERVAL '5' SECOND, INTERVAL '{slides}' SECOND)"
_OVER = (
    "SELECT {key}{answer} OVER ({part}ORDER BY happened {frame} AND CURRENT ROW) AS n FROM s WHERE x > {{i}}"
)
_RANGE = "RANGE BETWEEN INTERVAL '{r}' SECOND PRECEDING"
_ROWS = "ROWS BETWEEN {before} PRECEDING"
KINDS = {
    "tumbling": _WINDOWED.format(
        key="k, ",
        answer="COUNT(*)",
        window="TUMBLE(TABLE s, DESCRIPTOR(happened), INTERVAL '10' SECOND)",
    ),
    "sliding": _WINDOWED.format(key="k, ", answer="SUM(x)", window=_SLIDING),
    "range": _OVER.format(key="k, ", answer="COUNT(*)", part="PARTITION BY k ", frame=_RANGE),
    "rows": _OVER.format(key="", answer="SUM(x)", part="", frame=_ROWS),
    "partitions": _OVER.format(key="k, ", answer="MAX(x)", part="PARTITION BY k ", frame=_ROWS),
    "percentile": _WINDOWED.format(key="", answer="PERCENTILE(x, 0.5)", window=_SLIDING),
    "joins": "SELECT s.k, s.x, u.x AS y FROM s, u WHERE s.k = u.k AND s.x > {i} AND s.happened BETWEEN"
    " u.happened - INTERVAL '{r}' SECOND AND u.happened + INTERVAL '{r}' SECOND",
}
"""The kinds that Flink SQL has. Ranges of its sliding windows are multiples of the slide: the next greater one."""


def texts(kind: str, count: int) -> list[str]:
    """So many queries of a kind, with the conditions and ranges that ours have."""
    ranges = [10 + number % 50 for number in range(count)]
    return [
        KINDS[kind].format(i=-1 - number, r=r, before=r - 1, slides=-(-r // 5) * 5)
        for number, r in enumerate(ranges)
    ]


def main() -> None:
    kind, count, warm_up, epochs, name = sys.argv[1:]
    folder = Path(name)
    folder.mkdir(parents=True)
    (folder / "texts").write_text("\n".join(texts(kind, int(count))), encoding="utf-8")
    print(json.dumps(java("Standing", folder / "texts", warm_up, epochs)), flush=True)


if __name__ == "__main__":
    main()
