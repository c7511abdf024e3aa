"""Flink with many standing queries over one stream; `src/peers/Queries.java` does it, this starts it. Prints one line of JSON.

`one by one`: a statement set of an INSERT for each query over one source. `shared`: a table function gives the numbers of the queries that
want a row, and one windowed aggregation groups by them.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from benchmarks.peers.flink.runner import java, name_files
from benchmarks.protocol import cores

NAMES = ("a", "b", "c", "d")
WIDEST = (-(1 << 30), 1 << 30)
Predicate = list[tuple[str, int, int]]


def as_rule(factors: Predicate) -> str:
    """The lower and the upper bound of each attribute."""
    known = {name: (low, high) for name, low, high in factors}
    return " ".join(str(end) for name in NAMES for end in known.get(name, WIDEST))


def main() -> None:
    way, source, output = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    predicates: list[Predicate] = json.loads(Path(sys.argv[4]).read_text(encoding="utf-8"))
    output.mkdir(parents=True)
    rules, last, answers = output / "rules", output / "last", output / "answer"
    rules.write_text("\n".join(map(as_rule, predicates)), encoding="utf-8")
    last.mkdir()
    shutil.copy(max(source.iterdir()), last)
    said = java(
        "Queries", "shared" if way == "shared" else "each", source, last, answers / "all", rules, cores()
    )
    name_files(answers / "all")
    shutil.rmtree(answers / "all.warm-up")
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
