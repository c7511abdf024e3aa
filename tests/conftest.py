"""What every test may ask for: the one Spark session of its process, and how hard hypothesis tries."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import engine

from tests.examples import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Deadlines are times, and times mean nothing on a shared machine.
settings.register_profile(
    "quick", deadline=None, max_examples=QUICK, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("narrow", settings.get_profile("quick"), max_examples=15)
settings.register_profile(
    "soak", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
assert hasattr(engine, "MAX_SHRINKING_SECONDS"), "hypothesis bounds shrinking by another name now"
engine.MAX_SHRINKING_SECONDS = 20  # its five minutes for each failing test would be most of a red run
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# What it asserts for many tests shows what differs, as if they asserted it.
pytest.register_assert_rewrite("tests.runtime.rig")


def _look_at(descriptor: int) -> None:
    os.fstat(descriptor)  # as of a sync: an error when it is no file's


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_platters() -> Iterator[None]:
    """A descriptor is checked, not synced: milliseconds a call, and no test cuts the real power.

    What a power cut would lose is the business of `tests/store/faults.py`, which counts every sync; that a `Disk` asks the
    system for each is in `tests/store/files/test_disk.py`. Processes that tests start, and the soak, do sync.
    """
    with pytest.MonkeyPatch.context() as patched:
        if os.environ.get("HYPOTHESIS_PROFILE") != "soak":
            patched.setattr(os, "fsync", _look_at)
        yield


@pytest.fixture(scope="session", autouse=True)
def interrupts_are_heard() -> None:
    """A shell has what it starts with `&` ignore Ctrl-C, and so would every process that tests start and interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session all tests of a process share: starting one takes seconds, and a process can have only one."""
    from headrace.runtime.spark.session import session

    with session(2, app="headrace-tests", scratch=tmp_path_factory.mktemp("spark"), brief=True) as shared:
        yield shared
