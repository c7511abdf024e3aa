"""A tour of a running hub with real processes: serve, register from a second terminal, push, watch, alert, kill, resume.

Each command is shown before it is run, as a reader would type it. On a terminal the tour waits for Enter between its steps.
`python examples/tour.py [FOLDER]`; without a folder in a temporary one.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PATIENCE_SECONDS = 60.0
DEFINITIONS = """
CREATE STREAM bids (auction BIGINT, price DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at;
CREATE QUERY busy AS
  SELECT auction, COUNT(*) AS n, MAX(price) AS top
  FROM bids [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY auction"""
ALERT = "CREATE QUERY high FROM NOW AS SELECT auction, price FROM bids WHERE price > 1000 THEN CALL '{url}'"
ENVIRONMENT = os.environ | {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    "PYTHONUNBUFFERED": "1",
    "HEADRACE_EXECUTOR": os.environ.get("HEADRACE_EXECUTOR", "local"),  # without Java: it starts in a second
}


def say(*lines: str) -> None:
    print("", *(f"# {line}" for line in lines), sep="\n", flush=True)
    if sys.stdin.isatty():
        input("# Enter goes on. ")


def run(command: str) -> str:
    """Show a command, run it, show what it prints. A mistake in the tour ends it."""
    print(f"$ {command}", flush=True)
    done = subprocess.run(command, check=False, shell=True, env=ENVIRONMENT, capture_output=True, text=True)
    output = (done.stdout + done.stderr).rstrip()
    print(output, flush=True)
    if done.returncode:
        raise SystemExit(f"the command failed with {done.returncode}")
    return output


def shortened(line: str, most: int = 150) -> str:
    return line if len(line) <= most else f"{line[: most - 1]}…"


class Background:
    """A command that goes on running; its lines are shown as they come, and kept."""

    def __init__(self, command: str, prefix: str) -> None:
        print(f"$ {command} &", flush=True)
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, args=(prefix,))
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self, prefix: str) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line)
            if line.strip() and not line.startswith(":"):
                print(f"{prefix} | {shortened(line.rstrip())}", flush=True)

    def until(self, words: str, times: int = 1) -> None:
        wait_until(lambda: sum(words in line for line in tuple(self.lines)) >= times, words)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(how)
        self._process.wait()
        self._reader.join()


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_true():
        if time.monotonic() > end:
            raise SystemExit(f"no '{what}' after {PATIENCE_SECONDS:.0f} seconds")
        time.sleep(0.02)


class Alerts:
    """A program that alerts are sent to: its address, and the calls that it got."""

    def __init__(self, address: str) -> None:
        self.address, self.calls = address, list[str]()

    def until(self, times: int) -> None:
        wait_until(lambda: len(self.calls) >= times, "alert")


@contextmanager
def receiver() -> Iterator[Alerts]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            print(f"alert | {body}", flush=True)
            alerts.calls.append(body)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        alerts = Alerts(f"http://127.0.0.1:{server.server_port}/alert")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield alerts
        server.shutdown()


def write_bids(file: Path, minute: int, dearest: float) -> Path:
    """A minute of bids, one a second, as JSON lines."""
    bids = [
        {
            "auction": second % 3,
            "price": dearest if second == 30 else 10.0 + second,
            "at": f"2024-01-01T00:{minute:02d}:{second:02d}Z",
        }
        for second in range(60)
    ]
    file.write_text("".join(f"{json.dumps(bid)}\n" for bid in bids))
    return file


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tour(folder: Path, alerts: Alerts) -> None:
    home, url = shlex.quote(str(folder / "shop")), f"http://127.0.0.1:{free_port()}"
    serve = f"headrace serve --home {home} --no-auth --port {url.rpartition(':')[2]}"
    shell = f"headrace shell --home {home} --format csv"
    fetch = f"headrace fetch busy --home {home} --client ana --format csv"
    minutes = [write_bids(folder / f"minute-{n}.jsonl", n, 2500.0 if n else 99.0) for n in range(3)]

    def push(minute: int, more: str = "") -> None:
        file = shlex.quote(str(minutes[minute]))
        run(f"curl -sS {more}-X POST --data-binary @{file} {url}/v1/streams/bids/rows")

    say("One process runs the hub. The tour lets everybody on this machine in, and needs no Java.")
    hub = Background(serve, "hub")
    hub.until("listening on")
    try:
        say("A second terminal registers a stream and a query that is answered as rows arrive.")
        run(f'{shell} -e "{DEFINITIONS}"')
        say("A third one watches the query.")
        watching = Background(f"curl -sN {url}/v1/queries/busy/follow", "watch")
        watching.until(": following")
        say("Push a minute of bids: windows of ten seconds close, and are sent to who watches.")
        push(0)
        watching.until("data: ")
        say(f"An alert: a query that calls a program, here one of this tour at {alerts.address}.")
        run(f'{shell} -e "{ALERT.format(url=alerts.address)}"')
        push(1)
        alerts.until(1)
        say("A client with a name gets what it has not got yet, and acknowledges it.")
        run(fetch)
        watching.end()
        say("Now the worst: the hub is killed.")
        print(f"$ kill -9 {hub.pid}", flush=True)
        hub.end(signal.SIGKILL)
        say("The next start resumes from what was committed: nothing is lost, nothing counts twice.")
        hub = Background(serve, "hub")
        hub.until("listening on")
        say(
            "A push that may have arrived can be repeated with its key: it counts once, and so does its alert."
        )
        for _ in range(2):
            push(2, "-H 'Idempotency-Key: minute-2' ")
        alerts.until(2)
        wait_until(lambda: rows_of(url) == 180, "third minute")
        run(f'{shell} -e "SHOW STREAMS"')
        say("The client continues where it was.")
        run(fetch)
        say("What runs, who shares it, and what it costs. The console shows it live in a browser:", url)
        run(f"headrace explain --home {home}")
    finally:
        hub.end()
    say("The end. Where to go from here: docs/guide/first-steps.md, docs/guide/console.md.")


def rows_of(url: str) -> int:
    """The rows of the stream, as the hub reports them."""
    command = ["curl", "-sS", f"{url}/v1/summary"]
    done = subprocess.run(command, check=True, env=ENVIRONMENT, capture_output=True, text=True)
    return int(json.loads(done.stdout)["streams"]["bids"]["rows"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made, receiver() as listening:
        chosen = Path(sys.argv[1] if len(sys.argv) > 1 else made).absolute()
        chosen.mkdir(parents=True, exist_ok=True)
        tour(chosen, listening)
