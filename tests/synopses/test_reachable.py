"""Every synopsis of the product is used by an operator; the others are baselines of the benchmarks."""

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "headrace"
IMPORT = re.compile(r"^from headrace\.(synopses[.\w]*) import", re.MULTILINE)


def test_issue_18_item_15_no_synopsis_is_out_of_reach_of_operators() -> None:
    modules = {
        path: path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
        for path in PACKAGE.rglob("*.py")
    }
    imported = {name: set(IMPORT.findall(path.read_text())) for path, name in modules.items()}
    reached: set[str] = set()
    waiting = {name for name in imported if name.startswith("operators.")}
    while waiting:
        name = waiting.pop()
        waiting |= imported[name] - reached
        reached.add(name)
    assert {
        name for name in imported if name.startswith("synopses.") and not name.endswith("__init__")
    } <= reached
