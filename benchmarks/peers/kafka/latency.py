"""Kafka Streams from a batch's arrival to its followed result, with a broker of its own; `src/peers/Latency.java` does it, this starts both.

`python -m benchmarks.peers.kafka.latency ROWS A_BATCH DUES QUERIES COMMIT_MS UNTIL_MS FOLDER`: with COMMIT_MS processing is exactly once
and the broker syncs every append before it acknowledges it; without (0) it is at least once, and nothing is synced. Prints one line of
JSON.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_HEAP = "2g"
_LONGEST_SECONDS = 60.0
_CLUSTER = "headrace-benchmarks-0w"
_SETTINGS = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={folder}
log.retention.ms=-1
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
{durability}
"""


def java() -> list[str]:
    """The command of a JVM, up to its class."""
    return [str(Path(os.environ["JAVA_HOME"]) / "bin" / "java"), f"-Xms{_HEAP}", f"-Xmx{_HEAP}"]


def _free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


@contextmanager
def broker(folder: Path, *, durable: bool, environment: Mapping[str, str] = os.environ) -> Iterator[str]:
    """A broker while the block runs; its address. `durable`: every append is synced."""
    port, controller = _free_ports()
    durability = "log.flush.interval.messages=1" if durable else ""
    settings = folder / "broker.properties"
    settings.write_text(
        _SETTINGS.format(broker=port, controller=controller, folder=folder / "log", durability=durability),
        encoding="utf-8",
    )
    formatting = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings)]
    subprocess.run([*java(), *formatting], check=True, stdout=sys.stderr, env=environment)
    with subprocess.Popen(
        [*java(), "kafka.Kafka", str(settings)], stdout=sys.stderr, env=environment
    ) as process:
        try:
            _wait_for(process, port)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + _LONGEST_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                sys.exit(f"Expected a broker on port {port}, found none.")
            time.sleep(0.1)
        else:
            return


def followed(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> str:
    """The line that the program prints which sends the rows and follows. Ends this process when that fails."""
    command = [*java(), "peers.Latency", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        sys.exit(f"Expected Kafka to end well, found exit code {done.returncode}.")
    return lines[-1]


def main() -> None:
    *arguments, folder = sys.argv[1:]
    Path(folder).mkdir(parents=True)
    with broker(Path(folder), durable=arguments[4] != "0") as address:
        print(followed([*arguments, folder, address, "streams"]), flush=True)


if __name__ == "__main__":
    main()
