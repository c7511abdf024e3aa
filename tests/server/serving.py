"""A served home for tests: a real process, and requests to it with curl."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.building import command, environment

STREAM = "CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;"
TUMBLE = "CREATE QUERY q AS SELECT k, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k;"
TOTAL = "CREATE QUERY total AS SELECT COUNT(*) AS n FROM s;"


@dataclass
class Served:
    process: subprocess.Popen[str]
    home: Path
    url: str
    token: str | None
    postgres: int = 0
    """The port for SQL tools."""

    def curl(self, path: str, *options: str, token: str | None = None) -> tuple[int, str]:
        """The status and the text of a response."""
        said = ("-H", f"Authorization: Bearer {token}") if token is not None else ()
        done = subprocess.run(
            ["curl", "-sS", "--max-time", "30", "-w", "\n%{http_code}", *said, *options, f"{self.url}{path}"],
            capture_output=True,
            text=True,
            check=True,
        )
        text, _, status = done.stdout.rpartition("\n")
        return int(status), text

    def get(self, path: str) -> Any:
        status, text = self.curl(path)
        assert status == 200, text
        return json.loads(text)

    def post(self, path: str, body: str, *options: str) -> tuple[int, Any]:
        status, text = self.curl(path, "-X", "POST", "--data-binary", body, *options)
        return status, json.loads(text)


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of localhost, and its key."""
    made, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
            ),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(made)),
        ],
        check=True,
        capture_output=True,
    )
    return made, key


@contextmanager
def served(home: Path, *options: str, auth: bool = False) -> Iterator[Served]:
    """`headrace serve` on a free port, without Spark; stopped as a service manager does."""
    process = subprocess.Popen(
        command("serve", "--home", home, "--port", "0", *([] if auth else ["--no-auth"]), *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        assert re.match(r"listening on https?://127\.0\.0\.1:", line), process.communicate()
        token = process.stdout.readline().split()[1] if auth else None
        port = process.stdout.readline() if "--postgres-port" in options else ":0/"
        yield Served(process, home, line.split()[-1], token, int(port.rpartition(":")[2].partition("/")[0]))
        if process.poll() is None:
            process.terminate()
            _, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            assert "Traceback" not in err, err
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
