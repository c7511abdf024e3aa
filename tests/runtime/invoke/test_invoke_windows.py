"""INVOKE of windows is what was emitted of the last one (of each partition): that of the reference, after every epoch."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.reference.evaluate import invoke
from headrace.reference.history import History, record
from tests.runtime.rig import Rig, canonical, cut, made_rows

WINDOWS = {
    "time": "[RANGE 6 SECONDS SLIDE 2 SECONDS]",
    "landmark": "[LANDMARK SLIDE 3 SECONDS]",
    "rows": "[ROWS 3 SLIDE 2]",
    "rows of partitions": "[PARTITION BY g ROWS 2 SLIDE 1]",
    "rows by arrival": "[ROWS 3 SLIDE 2 WATTR row_num]",
    "ends at rows": "[RANGE 5 SECONDS SLIDE 1 ROW]",
    "ends at rows of partitions": "[RANGE 5 SECONDS SLIDE 2 ROWS PA g]",
    "delta": "[PARTITION BY g DELTA 3 ON x]",
    "session": "[PARTITION BY g SESSION 1 SECOND]",
}
SHAPES = ("SELECT g, COUNT(*) AS n, MAX(x) AS top FROM s {} GROUP BY g", "SELECT k FROM s {} WHERE x > 0")


@pytest.mark.parametrize("window", WINDOWS)
def test_of_the_last_window_what_was_emitted_is_given_also_where_it_differs_in_nothing(
    tmp_path: Path, window: str
) -> None:
    """Rows an epoch each: enough of them that state is merged between two windows."""
    files = cut(made_rows(7, 26), *range(2, 26))
    texts = {}
    for number, shape in enumerate(SHAPES):
        plain = shape.format(WINDOWS[window])
        texts |= {
            f"all{number}": plain,
            f"new{number}": f"ISTREAM({plain})",
            f"gone{number}": f"DSTREAM({plain})",
        }
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    nothing = 0
    with rig.hub(2, texts) as hub:
        for number, file in enumerate(files):
            rig.drop(file)
            hub.catch_up()
            for name in texts if number % 2 else ():
                query = hub.operator_and_query(name)[1]
                history = History(
                    {"s": record([list(rows_of_file) for rows_of_file in files[: number + 1]], "at", 0)}, {}
                )
                meant = canonical(invoke(query, history, history.punctuation(query)))
                assert canonical(hub.query(name).invoke().to_pylist()) == meant, (name, number)
                nothing += not meant
    assert nothing
