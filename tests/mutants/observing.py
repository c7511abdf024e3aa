"""The pytest plugin of a sandbox: hypothesis draws the same examples in every run and does not shrink, and a file records
what became of each test (JSON lines: test, seconds, failed, error, message)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import Phase, settings

REPORT = "MUTANTS_REPORT"
EXAMPLES = "MUTANTS_EXAMPLES"
"""The environment variable with the most examples of a property; unset: as many as in `make test`."""
_MESSAGE = 300


def pytest_sessionstart() -> None:
    """Before test modules are imported, since their own settings build on these."""
    settings.register_profile(
        "mutants",
        settings(),
        max_examples=min(settings().max_examples, int(os.environ.get(EXAMPLES, sys.maxsize))),
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        phases=[Phase.explicit, Phase.generate],
    )
    settings.load_profile("mutants")


def _begin(test: str) -> None:
    os.environ["MUTANTS_TEST"] = test  # for processes that it starts, too
    tracer = getattr(sys.modules.get("sitecustomize"), "TRACER", None)
    if tracer is not None:
        tracer.restart()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """From here on lines are those of the file's fixtures."""
    _begin(item.nodeid.partition("::")[0])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """From here on lines are the test's own."""
    _begin(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Record a phase that failed, and every body."""
    report: Any = yield
    if report.when == "call" or report.failed:
        error = call.excinfo
        observed = {
            "test": item.nodeid,
            "seconds": round(call.duration, 3),
            "failed": report.failed,
            "error": "" if error is None else error.typename,
            "message": "" if error is None else str(error.value)[:_MESSAGE],
        }
        with open(os.environ[REPORT], "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(json.dumps(observed) + "\n")
    return report
