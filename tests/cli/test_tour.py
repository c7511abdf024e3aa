"""The tour of a running hub: each command that it shows does what the page promises, with real processes and a real kill."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.cli.building import environment

ROOT = Path(__file__).parents[2]


def test_the_tour_serves_pushes_watches_alerts_and_resumes_after_a_kill(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "tour.py"), str(tmp_path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout
    commands = re.findall(r"^\$ (\w+)", shown, re.MULTILINE)
    assert [commands.count(command) for command in ("headrace", "curl", "kill")] == [8, 5, 1]
    assert shown.count('{"accepted":60,"rejected":0}') == 4
    assert re.search(r"^bids,push,at,0 SECONDS,180,", shown, re.MULTILINE)
    alerts = [json.loads(line) for line in re.findall(r"^alert \| (.*)", shown, re.MULTILINE)]
    assert len({alert["key"] for alert in alerts}) == 2
    assert [row for alert in alerts for row in alert["rows"]] == [{"auction": 0, "price": 2500.0}] * 2
    first, second = (part.split("\n\n")[0].splitlines() for part in shown.split("auction,n,top\n")[1:])
    assert (len(first), len(second)) == (33, 18)
    windows = [line for line in [*first, *second] if line.endswith(",2500.0")]
    assert len(windows) == 2, "each dear bid is in one window, fetched once"
