"""A process that runs epochs on a home until a test kills it: `python -m tests.runtime.victim FOLDER TASKS WITH SLACK`.

It prints every epoch it has published. WITH is `spark`, `standing` (two standing tasks) or `local`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from headrace.runtime.hub.opening import open_hub
from tests.runtime.rig import script

QUERIES_OF_VICTIM = ("slide", "tumble", "now", "rows", "named", "some", "united", "met", "held")


def main() -> None:
    folder, tasks, executor, slack = sys.argv[1:]
    from tests.runtime.rig import QUERIES, SEVERAL

    queries = {name: (QUERIES | SEVERAL)[name] for name in QUERIES_OF_VICTIM}
    cores = 4 if executor == "standing" else 2
    with open_hub(
        Path(folder) / "home", local=executor == "local", tasks=int(tasks), brief=True, cores=cores
    ) as hub:
        if executor == "standing":
            hub.loop.engine.executor.standing.use = "always"
            hub.loop.engine.executor.few_rows = 0  # two state tasks, with an exchange
        hub.execute(script(Path(folder) / "in", queries, {"maxFilesPerTrigger": "1"}, int(slack)))
        hub.loop.engine.housekeeping.every = 5
        hub.loop.engine.housekeeping.grace = 0
        print("open", flush=True)  # noqa: T201 - its report
        while True:
            seen = hub.loop.step()
            if seen is None:
                time.sleep(0.002)
            else:
                print(seen.epoch, flush=True)  # noqa: T201 - its report


if __name__ == "__main__":
    main()
